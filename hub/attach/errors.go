package attach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// ErrStale means that an object is gone or differs from the object that the plan was made from:
// another writer was faster, or a cache is stale. Read it again and make a new plan.
var ErrStale = errors.New("the object has changed meanwhile")

// ErrRefused means that the limit or the fence of a Writer prevented a write. It says nothing
// about the volume or the objects.
var ErrRefused = errors.New("the write was not allowed")

// stale wraps ErrStale around the API server's answer to a patch whose tests failed (422) or whose
// object is gone. It does not wrap an answer with causes: the API server rejects a value then.
func stale(err error) error {
	state := apierrors.APIStatus(nil)
	failed := apierrors.IsInvalid(err) && errors.As(err, &state) && (state.Status().Details == nil || len(state.Status().Details.Causes) == 0)
	if failed || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: %w", ErrStale, err)
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

// NotReady reports whether an error of the Kubernetes API passes without action: the API server cannot be
// reached or cannot serve, a cache is stale, the hub is stopping, or may not write now. Such an
// error says nothing about the volume and does not belong in the status.
func NotReady(err error) bool {
	return errors.Is(err, ErrStale) || errors.Is(err, ErrRefused) || errors.Is(err, context.Canceled) || interrupted(err) || CannotServe(err)
}

// CannotServe reports whether the API server has answered that it cannot serve a request: the
// API server or a webhook of it is broken. Such an error is NotReady too, and may last.
func CannotServe(err error) bool {
	return !errors.Is(err, ErrRefused) && (apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err))
}

// Rejected reports whether the API server has answered that it does not accept a write, for
// example because of its size. A retry would fail too.
func Rejected(err error) bool {
	var answer apierrors.APIStatus
	return errors.As(err, &answer) && !NotReady(err)
}

// CauseOfStatus returns the cause of an error in the status of a VolumeAttachment.
func CauseOfStatus(e *storagev1.VolumeError) diagnosis.Cause {
	code := ""
	if e.ErrorCode != nil {
		code = codes.Code(*e.ErrorCode).String()
	}
	cause, _ := diagnosis.Parse(e.Message, code)
	return cause
}

// interrupted reports whether the API server cannot be reached (a url.Error is a net.Error), or a connection ended in the
// middle of an answer. It compares texts: some errors of HTTP/2 have no type, and the type of another is deprecated.
func interrupted(err error) bool {
	var network net.Error
	if errors.As(err, &network) || errors.Is(err, io.ErrUnexpectedEOF) {
		return true
	}
	for next := err; next != nil; next = errors.Unwrap(next) {
		err = next
	}
	return err != nil && (strings.HasPrefix(err.Error(), "http2: ") || strings.HasPrefix(err.Error(), "connection error: ") || strings.HasPrefix(err.Error(), "stream error: "))
}
