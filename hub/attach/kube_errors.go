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
)

// ErrStale says that an object was not what the plan was made from, or is gone:
// another writer was faster, or a cache lags. Look again and decide anew.
var ErrStale = errors.New("the object has changed meanwhile")

// ErrRefused says that the limit or the fence of a Writer did not let a write pass. It says
// nothing about the volume or the objects.
var ErrRefused = errors.New("the write was not allowed")

// stale turns the API server's answer to a patch whose tests did not hold (422), or
// whose object is gone, into ErrStale. An answer that names a cause is about a value
// that it does not accept and stays what it is.
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

// gone says whether the API server answered a patch with: there is no such object.
func gone(err error) bool { return errors.Is(err, ErrStale) && apierrors.IsNotFound(err) }

// ignoreGone turns the error of a write to a VolumeAttachment that is gone into none.
func ignoreGone(err error) error {
	if gone(err) {
		return nil
	}
	return err
}

// NotReady says whether an error is about the Kubernetes API and passes by itself: the
// API server could not be reached or could not serve, a cache lags, the hub is
// stopping, or it may not write just now. It says nothing about the volume, so it is
// not for the status.
func NotReady(err error) bool {
	var transport *url.Error
	return errors.Is(err, ErrStale) || errors.Is(err, ErrRefused) || errors.Is(err, context.Canceled) ||
		errors.As(err, &transport) || interrupted(err) || serverTrouble(err)
}

// CannotServe says whether the API server has answered that it cannot serve a request: itself, or
// a webhook that it asks, is out of order. That is NotReady, and may last.
func CannotServe(err error) bool {
	return !errors.Is(err, ErrStale) && !errors.Is(err, ErrRefused) && !errors.Is(err, context.Canceled) && serverTrouble(err)
}

// Rejected says whether the API server has answered that it does not take what was written,
// because of its size say. It never will.
func Rejected(err error) bool {
	var answer apierrors.APIStatus
	return errors.As(err, &answer) && !NotReady(err)
}

func serverTrouble(err error) bool {
	return apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err)
}

// interrupted says whether a connection ended in the middle of an answer: client-go hands
// these on as they are, and url.Errors only from before it.
func interrupted(err error) bool {
	var network net.Error
	var stream http2.StreamError
	return errors.As(err, &network) || errors.As(err, &stream) || errors.Is(err, io.ErrUnexpectedEOF) || ofHTTP2(err)
}

// ofHTTP2 says whether an error is about an HTTP/2 connection as a whole, which was lost,
// told to go away, or used against the protocol: one of these has no type, and that of
// another is deprecated.
func ofHTTP2(err error) bool {
	for next := err; next != nil; next = errors.Unwrap(next) {
		err = next
	}
	return err != nil && (strings.HasPrefix(err.Error(), "http2: ") || strings.HasPrefix(err.Error(), "connection error: "))
}
