package attach

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Controller is the CSI controller of a driver.
type Controller interface {
	// ControllerPublishVolume and ControllerUnpublishVolume block until the driver has
	// answered or ctx ends. Errors are gRPC statuses.
	ControllerPublishVolume(context.Context, *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error)
	ControllerUnpublishVolume(context.Context, *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error)
}

// Attacher makes the steps of plans for one driver: those of the Writer that it embeds, and
// Secrets, Guard, Publish and Unpublish. Each is one step to the outside, blocks until that
// is done, remembers nothing and changes nothing of what it was given. It is a value: make
// one where it is needed.
//
// An attach is Secrets, Guard, Publish, MarkAttached. Whatever the error, the finalizers stay:
// only an unpublish proves that a volume is detached. A detach is Secrets, Unpublish, Release,
// and MarkDetached if the VolumeAttachment lives on.
type Attacher struct {
	Writer
	Controller  Controller
	CallTimeout time.Duration // of one CSI call
	// Guards is shared by all Attachers of a driver. Nil: attaches of one PersistentVolume
	// do not run side by side.
	Guards *VolumeGuards
}

// CallError is the error of a CSI call. Its text is that of the gRPC status, which
// is what csi-attacher writes into the VolumeAttachment too.
type CallError struct {
	Method string
	Err    error
}

func (e *CallError) Error() string { return e.Err.Error() }
func (e *CallError) Unwrap() error { return e.Err }

// Secrets reads what goes with a call, each time anew, so that a rotated secret
// is used at once. No reference: no secrets.
func (a Attacher) Secrets(ctx context.Context, ref *corev1.SecretReference) (map[string]string, error) {
	if ref == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	secret, err := a.Kube.CoreV1().Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return nil, &secretError{ref.Namespace + "/" + ref.Name, err}
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

// Publish calls ControllerPublishVolume with what a plan to attach says, and returns the
// publish context. The error is a *CallError, without the values of the secrets; the volume may
// be attached all the same.
func (a Attacher) Publish(ctx context.Context, plan Plan, secrets map[string]string) (publishContext map[string]string, err error) {
	request := plan.Publish
	if secrets != nil {
		request = proto.CloneOf(request) // a plan that is kept holds no secrets
		request.Secrets = secrets
	}
	ctx, cancel := context.WithTimeout(ctx, a.CallTimeout)
	defer cancel()
	response, err := a.Controller.ControllerPublishVolume(ctx, request)
	if err != nil {
		return nil, &CallError{Method: "ControllerPublishVolume", Err: redact(err, secrets)}
	}
	return response.GetPublishContext(), nil
}

// Unpublish calls ControllerUnpublishVolume for a target. The error is a *CallError, without
// the values of the secrets. Any error, NotFound too, means not detached, as with csi-attacher.
func (a Attacher) Unpublish(ctx context.Context, target Target, secrets map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, a.CallTimeout)
	defer cancel()
	_, err := a.Controller.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{
		VolumeId: target.VolumeHandle, NodeId: target.NodeID, Secrets: secrets})
	if err != nil {
		return &CallError{Method: "ControllerUnpublishVolume", Err: redact(err, secrets)}
	}
	return nil
}
