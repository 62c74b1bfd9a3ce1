package attach

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	storagev1client "k8s.io/client-go/kubernetes/typed/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/internal/panics"
)

const (
	// requestTimeout is the default limit of one request to the API server.
	requestTimeout = 30 * time.Second
	// maxErrorMessage is the limit of the API server for a VolumeError, in bytes. It would reject a
	// longer message, and the user would see no error at all.
	maxErrorMessage = 1024
)

// Writer writes VolumeAttachments and PersistentVolumes, and nothing else in the hub does. Each
// write waits for the limit, gets its timeout, passes the fence, is encoded and sent, and is
// recorded, in this order. A Writer is a value, safe for concurrent use.
//
// Its methods block until the API server has answered. Their errors are ErrRefused, ErrStale, or
// those of the request.
type Writer struct {
	Kube Kube
	// Limit delays each write; the wait is not part of the timeout. If it returns an error, nothing is
	// written, and the write returns ErrRefused and that error.
	Limit func(context.Context) error
	// Fence is called last before each write, with the context of the request. If it returns an error,
	// nothing is written, as for Limit. It must not block.
	Fence func(context.Context) error
	// Written records each object that was written.
	Written Written
	// Timeout bounds one write; 0 means 30 s.
	Timeout time.Duration
	// FinalizerWrites lets concurrent attaches of one PersistentVolume write its finalizer once: all patches but the
	// first would fail.
	FinalizerWrites *singleflight.Group
}

// Kube is the part of a kubernetes.Interface that attaching needs.
type Kube interface {
	CoreV1() corev1client.CoreV1Interface
	StorageV1() storagev1client.StorageV1Interface
}

// Written receives each object that was written, as the API server returned it, before a cache
// shows it. It must not block.
type Written interface {
	VolumeAttachmentWritten(*storagev1.VolumeAttachment)
	PersistentVolumeWritten(*Volume)
}

func (w Writer) patchAttachment(ctx context.Context, patch *Patch, subresources ...string) (*storagev1.VolumeAttachment, error) {
	va, err := send(ctx, w, patch, w.Kube.StorageV1().VolumeAttachments().Patch, subresources...)
	if err == nil {
		w.Written.VolumeAttachmentWritten(va)
	}
	return va, err
}

func (w Writer) patchVolume(ctx context.Context, patch *Patch) error {
	pv, err := send(ctx, w, patch, w.Kube.CoreV1().PersistentVolumes().Patch)
	if err == nil {
		w.Written.PersistentVolumeWritten(VolumeOf(pv))
	}
	return err
}

// patchOptions turn off the API server's check for unknown fields. By default the API server drops them and warns, which nobody
// reads, and the check parses each patch once more.
var patchOptions = metav1.PatchOptions{FieldManager: FieldManager, FieldValidation: metav1.FieldValidationIgnore}

// send waits for the limit, calls the fence and sends a patch. It wraps the errors of limit and fence in ErrRefused, so that
// they do not count as answers of the API server.
func send[T any](ctx context.Context, w Writer, patch *Patch, do func(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (*T, error), subresources ...string) (*T, error) {
	body, err := json.Marshal(patch.Ops)
	if err != nil {
		return nil, err
	}
	if err := w.Limit(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(w.Timeout, requestTimeout))
	defer cancel()
	if err := w.Fence(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	object, err := do(ctx, patch.Name, types.JSONPatchType, body, patchOptions, subresources...)
	if err != nil {
		return nil, stale(err)
	}
	return object, nil
}

// AddFinalizers adds the finalizer to the PersistentVolume of a plan, and finalizer and annotations to the
// VolumeAttachment, both at the same time. It runs before the volume is attached, and does not write
// parts that the plan found there already. It returns nil only if both objects have all parts.
func (w Writer) AddFinalizers(ctx context.Context, plan Plan) (err error) {
	var panicked, ofVolume error
	var other sync.WaitGroup
	defer other.Wait()                               // also after a panic
	if patch := plan.VolumeFinalizer; patch != nil { // else the goroutine of a single write must grow its stack
		panics.Go(&other, func(err error) { panicked = err }, func() {
			_, ofVolume, _ = w.FinalizerWrites.Do(string(patch.UID), func() (any, error) { return nil, w.patchVolume(ctx, patch) })
		})
	}
	if plan.AttachmentFinalizer != nil {
		_, err = w.patchAttachment(ctx, plan.AttachmentFinalizer)
	}
	other.Wait()
	switch {
	case panicked != nil:
		panic(panicked) // in the goroutine of the caller, who contains it
	case ofVolume != nil:
		return fmt.Errorf("add finalizer to persistentvolume: %w", ofVolume)
	case err != nil:
		return fmt.Errorf("add finalizer to volumeattachment: %w", err)
	}
	return nil
}

// MarkAttached writes "attached" and the publish context that the driver returned into a VolumeAttachment. It
// replaces the whole status, so that no error and no metadata of an earlier attempt remains. It returns
// ErrStale if the note does not have the node ID of the target: the publish context is that of one node ID, and a
// write that arrives late must not add it to the note of another.
func (w Writer) MarkAttached(ctx context.Context, va *storagev1.VolumeAttachment, at Target, publishContext map[string]string) error {
	patch := newPatch(va, add("/status", storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: publishContext}))
	if at.NodeID != "" {
		patch.Ops = slices.Insert(patch.Ops, 1, test(annotationPath(AnnotationNodeID), at.NodeID))
	}
	return w.patchStatus(ctx, patch)
}

// RemoveFinalizer removes the driver's finalizer from a VolumeAttachment that has it, and returns the
// object after that. It returns nil if the object no longer exists: it was gone before, or it was
// being deleted and had no other finalizer.
func (w Writer) RemoveFinalizer(ctx context.Context, va *storagev1.VolumeAttachment) (*storagev1.VolumeAttachment, error) {
	va, err := w.patchAttachment(ctx, removeFinalizer(va, Finalizer(va.Spec.Attacher)))
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
	return ignoreGone(w.patchStatus(ctx, newPatch(va, add("/status", storagev1.VolumeAttachmentStatus{}))))
}

// RemoveVolumeFinalizer removes the finalizer of a driver from a PersistentVolume that has it. It returns nil if the
// PersistentVolume is gone.
func (w Writer) RemoveVolumeFinalizer(ctx context.Context, v *Volume, driver string) error {
	if err := ignoreGone(w.patchVolume(ctx, removeFinalizer(v.meta(), Finalizer(driver)))); err != nil {
		return fmt.Errorf("remove finalizer from persistentvolume: %w", err)
	}
	return nil
}

// SaveError writes the cause of a failed operation into the VolumeAttachment, for people and for
// kube-controller-manager, which shows it on the Pod. Errors of CSI calls carry their gRPC code,
// which the kubelet and the scheduler read. It returns nil if the object is gone, ErrStale if attached has changed.
func (w Writer) SaveError(ctx context.Context, va *storagev1.VolumeAttachment, op Operation, cause error) error {
	value := storagev1.VolumeError{Time: metav1.Now(), Message: Message(cause)}
	if call := (*CallError)(nil); errors.As(cause, &call) {
		code := status.Code(call.Err)
		if code > math.MaxInt32 { // a driver may answer with any number, and the API server rejects a negative one
			code = codes.Unknown
		}
		value.ErrorCode = new(int32(code))
	}
	return ignoreGone(w.patchStatus(ctx, newPatch(va, test("/status/attached", va.Status.Attached), add(errorPath(op), value))))
}

// ForgetError removes the error of an operation from an attached VolumeAttachment. It returns ErrStale
// if there is no such error or the VolumeAttachment is no longer attached.
func (w Writer) ForgetError(ctx context.Context, va *storagev1.VolumeAttachment, op Operation) error {
	return ignoreGone(w.patchStatus(ctx, newPatch(va, test("/status/attached", true), remove(errorPath(op)))))
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

// Message returns the Text of an error.
func Message(err error) string { return Text(err.Error()) }

// Text returns the form of a message for a VolumeAttachment or an Event: sanitized, and no longer
// than the API server accepts.
func Text(message string) string {
	return csiclient.Truncate(csiclient.Sanitize(message), maxErrorMessage)
}
