package hub

import (
	"context"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// workOnOrphan detaches a volume that was left attached by a VolumeAttachment that
// is gone (its deletion raced with the finalizer, or somebody took the finalizer:
// kubernetes/kubernetes issue 124749), unless another one wants it there.
func (d *driver) workOnOrphan(ctx context.Context, it *item) {
	r := d.ledger.orphan(it.key)
	if r == nil {
		d.queue.Done(it)
		return
	}
	if !d.decider().Capabilities.PublishUnpublish {
		d.queue.DoneFor(it, detachLane, d.desired.settings().Retry.Max) // nobody can be asked now
		return
	}
	if va := d.wantedThere(r); va != nil {
		d.leaveTo(it, va)
		return
	}
	handle := r.progress.Target.VolumeHandle
	if !d.queue.TakeTurn(it, handle) {
		return
	}
	err := d.attacher().Unpublish(ctx, &r.progress)
	switch {
	case err == nil:
		klog.FromContext(ctx).Info("Detached a volume whose VolumeAttachment is gone", "volumeHandle", handle, "node", r.node)
		d.ledger.buried(it.key)
		d.queue.Done(it)
	case isFenced(err):
		d.queue.Postpone(it, fencePause)
	case d.waitsOut(r, err):
		d.queue.DoneFor(it, detachLane, 0)
	default:
		failures := r.tries.failed(attach.Detaching)
		delay := backoff(d.desired.settings().Retry, failures, err, jitter)
		klog.FromContext(ctx).V(2).Info("Cannot detach a volume whose VolumeAttachment is gone, will try again",
			"volumeHandle", handle, "node", r.node, "failures", failures, "in", delay, "err", err)
		d.queue.DoneFor(it, detachLane, delay)
	}
}

// leaveTo leaves an orphan to a VolumeAttachment that wants its volume on its node,
// as soon as that one has its finalizer: from then on its deletion detaches.
func (d *driver) leaveTo(it *item, va *storagev1.VolumeAttachment) {
	if !attach.HasFinalizer(va.Finalizers, d.finalizer) {
		d.queue.DoneFor(it, detachLane, d.desired.settings().Retry.Max)
		return
	}
	d.ledger.buried(it.key)
	d.queue.Done(it)
}

// wantedThere returns a VolumeAttachment that asks for an orphan's volume on the
// same node, nil if there is none.
func (d *driver) wantedThere(r *record) *storagev1.VolumeAttachment {
	decider := d.decider()
	for _, va := range d.cluster.attachmentsBy(byNode, r.node) {
		if va = d.overlay.newest(va); va.Spec.Attacher != d.name || va.DeletionTimestamp != nil {
			continue
		}
		facts := d.cachedFacts(va)
		if facts.PersistentVolume == nil && !d.touched(va) && attach.VolumeName(va) != r.volume {
			continue // it waits for another PersistentVolume, and has nothing attached yet
		}
		if decider.MayWant(facts, r.progress.Target) {
			return va
		}
	}
	return nil
}

// touched says whether anybody may have called the driver for a VolumeAttachment.
func (d *driver) touched(va *storagev1.VolumeAttachment) bool {
	return va.Status.Attached || attach.HasFinalizer(va.Finalizers, d.finalizer) || va.Spec.Source.InlineVolumeSpec != nil
}
