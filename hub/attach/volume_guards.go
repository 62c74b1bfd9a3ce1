package attach

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
)

// VolumeGuards has attaches of one PersistentVolume that run side by side write its
// finalizer once: each patch tests the finalizers that its plan was made from, so all
// but the first would fail. It is safe for concurrent use.
type VolumeGuards struct {
	// Newest returns the newest known state of a PersistentVolume, nil if none is known. It
	// must not block.
	Newest func(name string) *corev1.PersistentVolume

	writes singleflight.Group
}

// Guard writes what must stand before the volume of a plan is attached: the finalizer on the
// PersistentVolume, and finalizer and annotations on the VolumeAttachment, side by side. Both
// stand when it returns nil. What stands already is not written.
func (a Attacher) Guard(ctx context.Context, plan Plan) error {
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

// guardVolume puts the finalizer on the PersistentVolume of a plan, unless another attach
// has done so since the plan was made. It blocks until that is written, by whichever
// attach, and returns its error.
func (a Attacher) guardVolume(ctx context.Context, plan Plan) error {
	if a.Guards == nil {
		return a.patchVolume(ctx, plan.GuardVolume)
	}
	_, err, _ := a.Guards.writes.Do(plan.GuardVolume.Name+"\x00"+string(plan.GuardVolume.encode()), func() (any, error) {
		now := a.Guards.Newest(plan.GuardVolume.Name)
		if now != nil && now.UID == plan.GuardVolume.UID && HasFinalizer(now.Finalizers, Finalizer(plan.attachment.Spec.Attacher)) {
			return nil, nil
		}
		return nil, a.patchVolume(ctx, plan.GuardVolume)
	})
	return err
}
