package attach

import (
	"context"
	"errors"
	"fmt"
	"math"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
)

// maxErrorMessage is what the API server takes in a VolumeError; a longer one
// would be refused, and the user would see no error at all.
const maxErrorMessage = 1024

// MarkAttached writes into the VolumeAttachment of a plan that its volume is attached, with
// the publish context that the driver returned. It replaces the whole status, so that no
// error and no metadata of an earlier attempt stays behind.
func (w Writer) MarkAttached(ctx context.Context, plan Plan, publishContext map[string]string) error {
	return w.writeStatus(ctx, plan.attachment, "/status", storagev1.VolumeAttachmentStatus{
		Attached: true, AttachmentMetadata: publishContext})
}

// Release takes the finalizer from the VolumeAttachment of a plan to detach, and returns the
// object that lives on; nil if there is none: it was gone before, or that was its last
// finalizer and it was being deleted.
func (w Writer) Release(ctx context.Context, plan Plan) (*storagev1.VolumeAttachment, error) {
	va, err := w.patchAttachment(ctx, plan.Release)
	switch {
	case gone(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("remove finalizer from volumeattachment: %w", err)
	case va.DeletionTimestamp != nil && len(va.Finalizers) == 0:
		return nil, nil
	}
	return va, nil
}

// MarkDetached empties the status of a VolumeAttachment that lives on after its volume was
// detached. It is no error if the object is gone.
func (w Writer) MarkDetached(ctx context.Context, va *storagev1.VolumeAttachment) error {
	return ignoreGone(w.writeStatus(ctx, va, "/status", storagev1.VolumeAttachmentStatus{}))
}

// ReleaseVolume carries out a patch that takes the finalizer from a
// PersistentVolume. A volume that is gone is fine.
func (w Writer) ReleaseVolume(ctx context.Context, patch *Patch) error {
	if err := w.patchVolume(ctx, patch); err != nil && !gone(err) {
		return fmt.Errorf("remove finalizer from persistentvolume: %w", err)
	}
	return nil
}

// SaveError writes why an operation did not succeed into the VolumeAttachment, for
// kube-controller-manager (which shows it on the pod) and for people. Errors of
// CSI calls carry their gRPC code, which the kubelet and the scheduler look at.
func (w Writer) SaveError(ctx context.Context, va *storagev1.VolumeAttachment, op Operation, cause error) error {
	value := storagev1.VolumeError{Time: metav1.Now(), Message: Message(cause)}
	if call := (*CallError)(nil); errors.As(cause, &call) {
		value.ErrorCode = errorCode(status.Code(call.Err))
	}
	path := "/status/attachError"
	if op == Detaching {
		path = "/status/detachError"
	}
	return ignoreGone(w.writeStatus(ctx, va, path, value))
}

// ForgetAttachError takes the attachError from a VolumeAttachment that is attached. It
// returns ErrStale if it has none, or is attached no more.
func (w Writer) ForgetAttachError(ctx context.Context, va *storagev1.VolumeAttachment) error {
	return ignoreGone(w.patchStatus(ctx, newPatch(va, test("/status/attached", true), remove("/status/attachError"))))
}

// writeStatus writes one value into the status. A VolumeAttachment that is gone is
// ErrStale.
func (w Writer) writeStatus(ctx context.Context, va *storagev1.VolumeAttachment, path string, value any) error {
	return w.patchStatus(ctx, newPatch(va, add(path, value)))
}

func (w Writer) patchStatus(ctx context.Context, patch *Patch) error {
	if _, err := w.patchAttachment(ctx, patch, "status"); err != nil {
		return fmt.Errorf("write status of volumeattachment: %w", err)
	}
	return nil
}

// errorCode is a gRPC code as the API server takes it: a driver may answer with a number
// that none is, and with a negative one the user would see no error at all.
func errorCode(code codes.Code) *int32 {
	if code > math.MaxInt32 {
		code = codes.Unknown
	}
	return new(int32(code))
}

// Message is the text of an error as it goes into a VolumeAttachment or an Event: plain,
// valid UTF-8, and not longer than the API server takes.
func Message(err error) string { return shorten(err.Error()) }

// Text is Message for what is no error.
func Text(message string) string { return shorten(message) }

func shorten(message string) string {
	return csiclient.Truncate(csiclient.Sanitize(message), maxErrorMessage)
}
