package attach

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Attacher carries out the steps of plans for one driver: the steps of the Writer that it embeds, and
// Secrets, Publish and Unpublish. Each step blocks until it is done, keeps no state and does
// not change its arguments. An Attacher is a value: make one where you need it.
//
// The steps of an attach are Secrets, AddFinalizers, Publish, MarkAttached. After any error the finalizers
// stay: only an unpublish proves that a volume is detached. The steps of a detach are Secrets,
// Unpublish, RemoveFinalizer, and MarkDetached if the VolumeAttachment still exists.
type Attacher struct {
	Writer
	// Call has do call a method of the driver's controller, and returns its error.
	Call        func(ctx context.Context, method string, do func(context.Context, Controller) error) error
	CallTimeout time.Duration // of one CSI call
	// ReadSecret reads a Secret that a volume names, unless volumes of the driver may not name it.
	ReadSecret func(context.Context, corev1.SecretReference) (*corev1.Secret, error)
	// Redactor is shared by all Attachers of a driver, and knows the secrets of their calls in flight.
	Redactor *Redactor
}

// Controller is the CSI controller of a driver.
type Controller interface {
	// Both block until the driver has answered or ctx ends. Errors are gRPC statuses.
	ControllerPublishVolume(context.Context, *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error)
	ControllerUnpublishVolume(context.Context, *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error)
}

// CallError is the error of a CSI call. Its text is that of the gRPC status, as in the
// VolumeAttachments of csi-attacher.
type CallError struct{ Err error }

func (e *CallError) Error() string { return e.Err.Error() }
func (e *CallError) Unwrap() error { return e.Err }

// Secrets reads the secrets of a call. It reads them each time, so that a rotated secret is used
// at once. For a nil reference it returns nil.
func (a Attacher) Secrets(ctx context.Context, ref *corev1.SecretReference) (map[string]string, error) {
	if ref == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	secret, err := a.ReadSecret(ctx, *ref)
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

// UnpublishSecrets reads the secrets for the unpublish of a volume at a target. It reads the Secret
// that the volume was published with, if that is known, or else now, the Secret of the
// PersistentVolume, which may have been recreated with another Secret. If the first Secret is gone, it
// reads now. If that is gone too, it returns published: the secrets that this process published the
// volume with, or nil (rook issue 16956).
func (a Attacher) UnpublishSecrets(ctx context.Context, target Target, r Record, now *corev1.SecretReference, published map[string]string) (map[string]string, error) {
	ref := now
	if r.SecretKnown && r.Target.VolumeHandle == target.VolumeHandle {
		ref = r.SecretRef
	}
	secrets, err := a.Secrets(ctx, ref)
	if !apierrors.IsNotFound(err) {
		return secrets, err
	}
	if now != nil && *now != *ref {
		if secrets, err := a.Secrets(ctx, now); !apierrors.IsNotFound(err) {
			return secrets, err
		}
	}
	if published != nil && r.Target == target {
		return published, nil
	}
	return nil, err
}

// Publish makes the call of a plan to attach, and returns the publish context. The error is a
// *CallError without the values of the secrets. After an error the volume may be attached.
func (a Attacher) Publish(ctx context.Context, plan Plan, secrets map[string]string) (publishContext map[string]string, err error) {
	request := plan.Publish
	if secrets != nil {
		request = proto.CloneOf(request) // plans are kept and must hold no secrets
		request.Secrets = secrets
	}
	err = a.call(ctx, "ControllerPublishVolume", secrets, func(ctx context.Context, c Controller) error {
		response, err := c.ControllerPublishVolume(ctx, request)
		publishContext = response.GetPublishContext()
		return err
	})
	return publishContext, err
}

// Unpublish calls ControllerUnpublishVolume for a target. The error is a *CallError without the
// values of the secrets. As with csi-attacher, after any error, also NotFound, the volume counts as
// attached.
func (a Attacher) Unpublish(ctx context.Context, target Target, secrets map[string]string) error {
	return a.call(ctx, "ControllerUnpublishVolume", secrets, func(ctx context.Context, c Controller) error {
		_, err := c.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{
			VolumeId: target.VolumeHandle, NodeId: target.NodeID, Secrets: secrets})
		return err
	})
}

// call makes a call with secrets within its timeout.
func (a Attacher) call(ctx context.Context, method string, secrets map[string]string, do func(context.Context, Controller) error) error {
	ctx, cancel := context.WithTimeout(ctx, a.CallTimeout)
	defer cancel()
	a.Redactor.calls.Store(&secrets, nil)
	defer a.Redactor.calls.Delete(&secrets)
	if err := a.Call(ctx, method, do); err != nil {
		return &CallError{Redact(err, secrets)}
	}
	return nil
}
