package attach

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
)

// maxErrorMessage is the limit of the API server for a VolumeError, in bytes. It would reject a
// longer message, and the user would see no error at all.
const maxErrorMessage = 1024

// MarkAttached writes "attached" and the publish context that the driver returned into the
// VolumeAttachment of a plan. It replaces the whole status, so that no error and no metadata of
// an earlier attempt remains. It returns ErrStale if the note does not have the node ID of the plan: the
// publish context is that of one node ID, and a write that arrives late must not add it to the note of another.
func (w Writer) MarkAttached(ctx context.Context, plan Plan, publishContext map[string]string) error {
	patch := newPatch(plan.attachment.Name, plan.attachment.UID, add("/status", storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: publishContext}))
	if plan.Target.NodeID != "" {
		patch.Ops = slices.Insert(patch.Ops, 1, test(annotationPath(AnnotationNodeID), plan.Target.NodeID))
	}
	return w.patchStatus(ctx, patch)
}

// Release removes the finalizer from the VolumeAttachment of a plan to detach, and returns the
// object after that. It returns nil if the object no longer exists: it was gone before, or it was
// being deleted and had no other finalizer.
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

// MarkDetached empties the status of a VolumeAttachment that still exists after its volume was
// detached. It returns nil if the object is gone.
func (w Writer) MarkDetached(ctx context.Context, va *storagev1.VolumeAttachment) error {
	return ignoreGone(w.patchStatus(ctx, newPatch(va.Name, va.UID, add("/status", storagev1.VolumeAttachmentStatus{}))))
}

// ReleaseVolume writes a patch that removes the finalizer from a PersistentVolume. It returns nil
// if the PersistentVolume is gone.
func (w Writer) ReleaseVolume(ctx context.Context, patch *Patch) error {
	if err := ignoreGone(w.patchVolume(ctx, patch)); err != nil {
		return fmt.Errorf("remove finalizer from persistentvolume: %w", err)
	}
	return nil
}

// SaveError writes the cause of a failed operation into the VolumeAttachment, for people and for
// kube-controller-manager, which shows it on the Pod. Errors of CSI calls carry their gRPC code,
// which the kubelet and the scheduler read. It returns nil if the object is gone.
func (w Writer) SaveError(ctx context.Context, va *storagev1.VolumeAttachment, op Operation, cause error) error {
	value := storagev1.VolumeError{Time: metav1.Now(), Message: Message(cause)}
	if call := (*CallError)(nil); errors.As(cause, &call) {
		value.ErrorCode = errorCode(status.Code(call.Err))
	}
	return ignoreGone(w.patchStatus(ctx, newPatch(va.Name, va.UID, add(errorPath(op), value))))
}

// ForgetError removes the error of an operation from an attached VolumeAttachment. It returns ErrStale
// if there is no such error or the VolumeAttachment is no longer attached.
func (w Writer) ForgetError(ctx context.Context, va *storagev1.VolumeAttachment, op Operation) error {
	return ignoreGone(w.patchStatus(ctx, newPatch(va.Name, va.UID, test("/status/attached", true), remove(errorPath(op)))))
}

func errorPath(op Operation) string {
	if op == Detaching {
		return "/status/detachError"
	}
	return "/status/attachError"
}

func (w Writer) patchStatus(ctx context.Context, patch *Patch) error {
	if _, err := w.patchAttachment(ctx, patch, "status"); err != nil {
		return fmt.Errorf("write status of volumeattachment: %w", err)
	}
	return nil
}

// errorCode returns a gRPC code in the form that the API server accepts. A driver may answer with
// any number; the API server rejects a negative code, and the user would see no error at all.
func errorCode(code codes.Code) *int32 {
	if code > math.MaxInt32 {
		code = codes.Unknown
	}
	return new(int32(code))
}

// Message returns the Text of an error.
func Message(err error) string { return Text(err.Error()) }

// Text returns the form of a message for a VolumeAttachment or an Event: sanitized, and no longer
// than the API server accepts.
func Text(message string) string {
	return csiclient.Truncate(csiclient.Sanitize(message), maxErrorMessage)
}
