package attach

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
)

const (
	// writeTimeout bounds one request to the API server, if nothing else was said.
	writeTimeout = 30 * time.Second
	// maxErrorMessage is what the API server takes in a VolumeError; a longer one
	// would be refused, and the user would see no error at all.
	maxErrorMessage = 1024
)

// secrets reads what goes with a call, each time anew, so that a rotated secret
// is used at once. No reference: no secrets.
func (a Attacher) secrets(ctx context.Context, ref *corev1.SecretReference) (map[string]string, error) {
	if ref == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	secret, err := a.Kube.CoreV1().Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read secret %s/%s for the call: %w", ref.Namespace, ref.Name, err)
	}
	values := make(map[string]string, len(secret.Data))
	for key, value := range secret.Data {
		if !utf8.Valid(value) {
			return nil, fmt.Errorf("the value of key %q in secret %s/%s is no text in UTF-8, and CSI has no other secrets", key, ref.Namespace, ref.Name)
		}
		values[key] = string(value)
	}
	return values, nil
}

// beginWrite asks BeforeWrite and the fence, and returns the context of the request. What
// they say is never taken for an answer of the API server.
func (a Attacher) beginWrite(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if a.BeforeWrite != nil {
		if err := a.BeforeWrite(ctx); err != nil {
			return nil, nil, fmt.Errorf("%w: %w", ErrRefused, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(a.WriteTimeout, writeTimeout))
	if a.Fence != nil {
		if err := a.Fence(ctx); err != nil {
			cancel()
			return nil, nil, fmt.Errorf("%w: %w", ErrRefused, err)
		}
	}
	return ctx, cancel, nil
}

func (a Attacher) patchVolume(ctx context.Context, patch *Patch) error {
	ctx, cancel, err := a.beginWrite(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	pv, err := a.Kube.CoreV1().PersistentVolumes().Patch(ctx, patch.Name, types.JSONPatchType, patch.encode(),
		metav1.PatchOptions{FieldManager: FieldManager})
	if err != nil {
		return stale(err)
	}
	a.Written.PersistentVolumeWritten(pv)
	return nil
}

// ReleaseVolume carries out a patch that takes the finalizer from a
// PersistentVolume. A volume that is gone is fine.
func (a Attacher) ReleaseVolume(ctx context.Context, patch *Patch) error {
	if err := a.patchVolume(ctx, patch); err != nil && !gone(err) {
		return fmt.Errorf("remove finalizer from persistentvolume: %w", err)
	}
	return nil
}

func (a Attacher) patchAttachment(ctx context.Context, patch *Patch, subresources ...string) (*storagev1.VolumeAttachment, error) {
	ctx, cancel, err := a.beginWrite(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	va, err := a.Kube.StorageV1().VolumeAttachments().Patch(ctx, patch.Name, types.JSONPatchType, patch.encode(),
		metav1.PatchOptions{FieldManager: FieldManager}, subresources...)
	if err != nil {
		return nil, stale(err)
	}
	a.Written.VolumeAttachmentWritten(va)
	return va, nil
}

// writeStatus writes one value into the status. A VolumeAttachment that is gone is
// ErrStale.
func (a Attacher) writeStatus(ctx context.Context, va *storagev1.VolumeAttachment, path string, value any) error {
	return a.patchStatus(ctx, newPatch(va, add(path, value)))
}

func (a Attacher) patchStatus(ctx context.Context, patch *Patch) error {
	if _, err := a.patchAttachment(ctx, patch, "status"); err != nil {
		return fmt.Errorf("write status of volumeattachment: %w", err)
	}
	return nil
}

// markAttached replaces the whole status, so that no error and no metadata of an
// earlier attempt stays behind.
func (a Attacher) markAttached(ctx context.Context, va *storagev1.VolumeAttachment, publishContext map[string]string) error {
	return a.writeStatus(ctx, va, "/status", storagev1.VolumeAttachmentStatus{
		Attached: true, AttachmentMetadata: publishContext})
}

func (a Attacher) markDetached(ctx context.Context, va *storagev1.VolumeAttachment) error {
	return ignoreGone(a.writeStatus(ctx, va, "/status", storagev1.VolumeAttachmentStatus{}))
}

// SaveError writes why an operation did not succeed into the VolumeAttachment, for
// kube-controller-manager (which shows it on the pod) and for people. Errors of
// CSI calls carry their gRPC code, which the kubelet and the scheduler look at.
func (a Attacher) SaveError(ctx context.Context, va *storagev1.VolumeAttachment, op Operation, cause error) error {
	value := storagev1.VolumeError{Time: metav1.Now(), Message: Message(cause)}
	if call := (*CallError)(nil); errors.As(cause, &call) {
		value.ErrorCode = errorCode(status.Code(call.Err))
	}
	path := "/status/attachError"
	if op == Detaching {
		path = "/status/detachError"
	}
	return ignoreGone(a.writeStatus(ctx, va, path, value))
}

// ForgetAttachError takes the attachError from a VolumeAttachment that is attached. It
// returns ErrStale if it has none, or is attached no more.
func (a Attacher) ForgetAttachError(ctx context.Context, va *storagev1.VolumeAttachment) error {
	return ignoreGone(a.patchStatus(ctx, newPatch(va, test("/status/attached", true), remove("/status/attachError"))))
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
	return csiclient.Shorten(csiclient.Plain(message), maxErrorMessage)
}
