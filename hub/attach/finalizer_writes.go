package attach

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/singleflight"

	"github.com/csi-attach-hub/csi-attach-hub/internal/panics"
)

// FinalizerWrites lets concurrent attaches of one PersistentVolume write its finalizer once. Each
// patch tests the finalizers that its plan was made from, so all but the first would fail. It is
// safe for concurrent use.
type FinalizerWrites struct {
	// Newest returns the newest known state of a PersistentVolume, nil if it is unknown. It
	// must not block.
	Newest func(name string) *Volume

	writes singleflight.Group
}

// AddFinalizers adds the finalizer to the PersistentVolume of a plan, and finalizer and annotations to the
// VolumeAttachment, both at the same time. It runs before the volume is attached, and does not write
// parts that the plan found there already. It returns nil only if both objects have all parts.
func (a Attacher) AddFinalizers(ctx context.Context, plan Plan) error {
	if plan.VolumeFinalizer == nil { // most attaches: a goroutine for one write would have to grow its stack
		return a.addAttachmentFinalizer(ctx, plan)
	}
	var panicked, ofVolume error
	err := func() error {
		var other sync.WaitGroup
		defer other.Wait()
		panics.Go(&other, func(err error) { panicked = err }, func() { ofVolume = a.addVolumeFinalizer(ctx, plan) })
		return a.addAttachmentFinalizer(ctx, plan)
	}()
	switch {
	case panicked != nil:
		panic(panicked) // in the goroutine of the caller, who contains it
	case ofVolume != nil:
		return fmt.Errorf("add finalizer to persistentvolume: %w", ofVolume)
	}
	return err
}

// addAttachmentFinalizer adds finalizer and annotations to the VolumeAttachment of a plan that lacks some.
func (a Attacher) addAttachmentFinalizer(ctx context.Context, plan Plan) error {
	if plan.AttachmentFinalizer == nil {
		return nil
	}
	if _, err := a.patchAttachment(ctx, plan.AttachmentFinalizer); err != nil {
		return fmt.Errorf("add finalizer to volumeattachment: %w", err)
	}
	return nil
}

// addVolumeFinalizer adds the finalizer to the PersistentVolume of a plan, unless another attach has done
// so since the plan was made. It blocks until this or the other attach has written it.
func (a Attacher) addVolumeFinalizer(ctx context.Context, plan Plan) error {
	if a.FinalizerWrites == nil {
		return a.patchVolume(ctx, plan.VolumeFinalizer)
	}
	_, err, _ := a.FinalizerWrites.writes.Do(plan.VolumeFinalizer.Name+"\x00"+string(plan.VolumeFinalizer.encode()), func() (any, error) {
		now := a.FinalizerWrites.Newest(plan.VolumeFinalizer.Name)
		if now != nil && now.UID == plan.VolumeFinalizer.UID && HasFinalizer(now.Finalizers, Finalizer(plan.attachment.Spec.Attacher)) {
			return nil, nil
		}
		return nil, a.patchVolume(ctx, plan.VolumeFinalizer)
	})
	return err
}
