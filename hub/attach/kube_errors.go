package attach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"

	"golang.org/x/net/http2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// ErrStale means that an object is gone or differs from the object that the plan was made from:
// another writer was faster, or a cache is stale. Read it again and make a new plan.
var ErrStale error = &causeError{"the object has changed meanwhile", diagnosis.ObjectChanged}

// ErrRefused means that the limit or the fence of a Writer prevented a write. It says nothing
// about the volume or the objects.
var ErrRefused error = &causeError{"the write was not allowed", diagnosis.WriteForbidden}

// stale wraps ErrStale around the API server's answer to a patch whose tests failed (422) or whose
// object is gone. It does not wrap an answer with causes: the API server rejects a value then.
func stale(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: %w", ErrStale, err)
	}
	if state := apierrors.APIStatus(nil); apierrors.IsInvalid(err) && errors.As(err, &state) {
		if details := state.Status().Details; details == nil || len(details.Causes) == 0 {
			return fmt.Errorf("%w: %w", ErrStale, err)
		}
	}
	return err
}

// gone reports whether the API server answered a patch with "not found".
func gone(err error) bool { return errors.Is(err, ErrStale) && apierrors.IsNotFound(err) }

// ignoreGone returns nil for the error of a write to an object that is gone.
func ignoreGone(err error) error {
	if gone(err) {
		return nil
	}
	return err
}

// NotReady reports whether an error of the Kubernetes API passes by itself: the API server cannot be
// reached or cannot serve, a cache is stale, the hub is stopping, or may not write now. Such an
// error says nothing about the volume and does not belong in the status.
func NotReady(err error) bool {
	var transport *url.Error
	return errors.Is(err, ErrStale) || errors.Is(err, ErrRefused) || errors.Is(err, context.Canceled) ||
		errors.As(err, &transport) || interrupted(err) || serverFailed(err)
}

// CannotServe reports whether the API server has answered that it cannot serve a request: the
// API server or a webhook of it is broken. Such an error is NotReady too, and may last.
func CannotServe(err error) bool {
	return !errors.Is(err, ErrStale) && !errors.Is(err, ErrRefused) && !errors.Is(err, context.Canceled) && serverFailed(err)
}

// Rejected reports whether the API server has answered that it does not accept a write, for
// example because of its size. A retry would fail too.
func Rejected(err error) bool {
	var answer apierrors.APIStatus
	return errors.As(err, &answer) && !NotReady(err)
}

func serverFailed(err error) bool {
	return apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err)
}

// interrupted reports whether a connection ended in the middle of an answer. client-go returns such
// errors as they are, and as a url.Error only before the answer began.
func interrupted(err error) bool {
	var network net.Error
	var stream http2.StreamError
	return errors.As(err, &network) || errors.As(err, &stream) || errors.Is(err, io.ErrUnexpectedEOF) || ofHTTP2(err)
}

// ofHTTP2 reports whether an error is about a whole HTTP/2 connection: the connection was lost, got
// a GOAWAY, or violated the protocol. It compares texts: one of these errors has no type, and the
// type of another is deprecated.
func ofHTTP2(err error) bool {
	for next := err; next != nil; next = errors.Unwrap(next) {
		err = next
	}
	return err != nil && (strings.HasPrefix(err.Error(), "http2: ") || strings.HasPrefix(err.Error(), "connection error: "))
}
