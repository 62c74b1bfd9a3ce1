package attach

import (
	"cmp"
	"context"
	"fmt"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	storagev1client "k8s.io/client-go/kubernetes/typed/storage/v1"
)

// requestTimeout is the default limit of one request to the API server.
const requestTimeout = 30 * time.Second

// Writer writes VolumeAttachments and PersistentVolumes, and nothing else in the hub does. Each
// write waits for the limit, gets its timeout, passes the fence, is encoded and sent, and is
// recorded, in this order. A Writer is a value, safe for concurrent use.
//
// Its methods block until the API server has answered. Their errors are ErrRefused, ErrStale, or
// those of the request.
type Writer struct {
	Kube Kube
	// Limit delays each write; the wait is not part of the timeout. If it returns an error, nothing is
	// written, and the write returns ErrRefused and that error. Nil: no limit.
	Limit func(context.Context) error
	// Fence is called last before each write, with the context of the request. If it returns an error,
	// nothing is written, as for Limit. It must not block. Nil: no fence.
	Fence func(context.Context) error
	// Written records each object that was written. Nil: none is recorded.
	Written Written
	// Timeout bounds one write; 0 means 30 s.
	Timeout time.Duration
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
	if err == nil && w.Written != nil {
		w.Written.VolumeAttachmentWritten(va)
	}
	return va, err
}

func (w Writer) patchVolume(ctx context.Context, patch *Patch) error {
	pv, err := send(ctx, w, patch, w.Kube.CoreV1().PersistentVolumes().Patch)
	if err == nil && w.Written != nil {
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
	if w.Limit != nil {
		if err := w.Limit(ctx); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrRefused, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(w.Timeout, requestTimeout))
	defer cancel()
	if w.Fence != nil {
		if err := w.Fence(ctx); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrRefused, err)
		}
	}
	object, err := do(ctx, patch.Name, types.JSONPatchType, patch.encode(), patchOptions, subresources...)
	if err != nil {
		return nil, stale(err)
	}
	return object, nil
}
