package attach

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Controller is the CSI controller of a driver.
type Controller interface {
	// ControllerPublishVolume and ControllerUnpublishVolume block until the driver has
	// answered or ctx ends. Errors are gRPC statuses.
	ControllerPublishVolume(context.Context, *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error)
	ControllerUnpublishVolume(context.Context, *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error)
}

// Written is told each object that was written, as the API server returned it:
// a cache shows it only later. It must not block.
type Written interface {
	VolumeAttachmentWritten(*storagev1.VolumeAttachment)
	PersistentVolumeWritten(*corev1.PersistentVolume)
}

// Attacher carries plans out for one driver. It is a value: make one where it is
// needed.
type Attacher struct {
	Kube       Kube
	Controller Controller
	Written    Written
	Timeout    time.Duration // of one CSI call
	// Guards is shared by all Attachers of a driver. Nil: attaches of one PersistentVolume
	// do not run side by side.
	Guards *VolumeGuards
	// BeforeWrite is asked right before each write request to the Kubernetes API and
	// may block, for a rate limit say: what it waits is no part of the request's
	// timeout. With an error nothing is written, and ErrRefused and that error are in
	// the chain of what is returned. It is called from several goroutines at once.
	// Nil lets everything pass.
	BeforeWrite func(context.Context) error
	// Fence is asked last before each write, with the deadline of the request in the
	// context; its error is handed on like that of BeforeWrite. It must not block.
	Fence func(context.Context) error
	// WriteTimeout bounds one write request; 0 means 30 s.
	WriteTimeout time.Duration
}

// ErrStale says that an object was not what the plan was made from, or is gone:
// another writer was faster, or a cache lags. Look again and decide anew.
var ErrStale = errors.New("the object has changed meanwhile")

// ErrRefused says that BeforeWrite did not let a write pass. It says nothing about
// the volume or the objects.
var ErrRefused = errors.New("the write was not allowed")

// CallError is the error of a CSI call. Its text is that of the gRPC status, which
// is what csi-attacher writes into the VolumeAttachment too.
type CallError struct {
	Method string
	Err    error
}

func (e *CallError) Error() string { return e.Err.Error() }
func (e *CallError) Unwrap() error { return e.Err }

// Attach carries out a plan to attach: finalizers, then the call, then the
// status. It blocks for as long as these take, and stops at the first error: a
// *CallError, ErrStale, an error of the Kubernetes API. Whatever the error, the
// finalizers stay: only an unpublish proves that a volume is detached.
func (a Attacher) Attach(ctx context.Context, plan Plan, p *Progress) error {
	if plan.Publish == nil {
		if err := a.guard(ctx, plan); err != nil || !plan.MarkAttached {
			return err
		}
		return a.markAttached(ctx, plan.attachment, nil)
	}
	if p.state != published || p.Target != plan.Target {
		secrets, err := a.secrets(ctx, plan.SecretRef)
		if err != nil {
			return err
		}
		if err := a.guard(ctx, plan); err != nil {
			return err
		}
		if err := a.publish(ctx, plan, p, secrets); err != nil {
			return err
		}
	}
	if err := a.markAttached(ctx, plan.attachment, p.context); err != nil {
		var answer apierrors.APIStatus
		if errors.As(err, &answer) && !NotReady(err) {
			// The API server does not take this publish context, because of its size say, and
			// never will. The driver may give another one when it is asked again.
			p.state, p.context = uncertain, nil
		}
		return err
	}
	p.state, p.context = recorded, nil
	return nil
}

// Detach carries out a plan to detach: the call, then the finalizer, then the
// status if the object still lives. Errors are as in Attach. Any error of the
// call, NotFound too, means not detached, as with csi-attacher.
func (a Attacher) Detach(ctx context.Context, plan Plan, p *Progress) error {
	if plan.Unpublish != nil && !(p.state == unpublished && p.Target == plan.Target) {
		if err := a.unpublish(ctx, plan, p); err != nil {
			return err
		}
	}
	// The finalizer goes first: as long as the status says attached, nobody takes the
	// volume for free (external-attacher issue 587), and a status of an object that
	// is gone need not be written.
	va, err := a.patchAttachment(ctx, plan.Release)
	switch {
	case gone(err):
		return nil
	case err != nil:
		return fmt.Errorf("remove finalizer from volumeattachment: %w", err)
	case va.DeletionTimestamp != nil && len(va.Finalizers) == 0:
		return nil // that was the last finalizer: the object is gone
	}
	return a.markDetached(ctx, va)
}

// Unpublish makes the call of a plan alone, for a VolumeAttachment that is gone.
func (a Attacher) Unpublish(ctx context.Context, p *Progress) error {
	return a.unpublish(ctx, Plan{
		Target:    p.Target,
		SecretRef: p.SecretRef,
		Unpublish: &csi.ControllerUnpublishVolumeRequest{VolumeId: p.Target.VolumeHandle, NodeId: p.Target.NodeID},
	}, p)
}

// guard writes what must stand before the volume is attached, side by side: both
// have been written when it returns nil.
func (a Attacher) guard(ctx context.Context, plan Plan) error {
	var writes errgroup.Group
	if plan.GuardVolume != nil {
		writes.Go(func() error {
			if err := a.guardVolume(ctx, plan); err != nil {
				return fmt.Errorf("add finalizer to persistentvolume: %w", err)
			}
			return nil
		})
	}
	if plan.GuardAttachment != nil {
		writes.Go(func() error {
			if _, err := a.patchAttachment(ctx, plan.GuardAttachment); err != nil {
				return fmt.Errorf("add finalizer to volumeattachment: %w", err)
			}
			return nil
		})
	}
	return writes.Wait()
}

func (a Attacher) publish(ctx context.Context, plan Plan, p *Progress, secrets map[string]string) error {
	p.Target, p.SecretRef, p.secretKnown = plan.Target, plan.SecretRef, true
	p.nodes = nodeModeOf(plan.Publish.GetVolumeCapability().GetAccessMode().GetMode())
	p.state, p.context = uncertain, nil
	plan.Publish.Secrets = secrets
	ctx, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	response, err := a.Controller.ControllerPublishVolume(ctx, plan.Publish)
	if err != nil {
		return &CallError{Method: "ControllerPublishVolume", Err: redact(err, secrets)}
	}
	p.state, p.context, p.secrets = published, response.GetPublishContext(), secrets
	return nil
}

func (a Attacher) unpublish(ctx context.Context, plan Plan, p *Progress) error {
	secrets, err := a.unpublishSecrets(ctx, plan, p)
	if err != nil {
		return err
	}
	plan.Unpublish.Secrets = secrets
	ctx, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	if _, err := a.Controller.ControllerUnpublishVolume(ctx, plan.Unpublish); err != nil {
		return &CallError{Method: "ControllerUnpublishVolume", Err: redact(err, secrets)}
	}
	p.Target, p.state, p.nodes, p.context, p.secrets = plan.Target, unpublished, unknownNodes, nil, nil
	return nil
}
