package hub

import (
	"context"
	"errors"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// workOnVolume takes the driver's finalizer from a PersistentVolume that is being
// deleted, once no VolumeAttachment names it any more.
func (d *driver) workOnVolume(ctx context.Context, it *item) {
	name := it.key.name
	pv := d.overlay.Volume(name)
	var patch *attach.Patch
	if pv != nil {
		patch = d.decider().ReleaseVolume(pv, d.cluster.VolumeInUse(name))
	}
	if patch == nil {
		d.ledger.volumeDone(name)
		d.queue.Done(it)
		return
	}
	if d.ledger.unsettled(name, d.desired.settings().StuckAfter, time.Now()) {
		// Its VolumeAttachment has just gone, maybe in the middle of its detach.
		d.queue.DoneFor(it, releaseLane, d.desired.settings().Retry.Initial)
		return
	}
	if d.ledger.withheld(attach.VolumeHandle(pv), d.desired.settings().StuckAfter, time.Now()) {
		// It may still be attached, and must not be deleted before it is not.
		d.queue.DoneFor(it, releaseLane, d.desired.settings().Retry.Max)
		return
	}
	known, err := d.knowsAll(ctx)
	if err == nil && !known {
		d.queue.DoneFor(it, releaseLane, staleCachePause)
		return
	}
	if err == nil {
		err = d.attacher().ReleaseVolume(ctx, patch)
	}
	if errors.Is(err, attach.ErrStale) {
		d.refreshVolume(ctx, name)
	}
	if isFenced(err) {
		d.queue.Postpone(it, fencePause)
		return
	}
	if err != nil {
		delay := backoff(d.desired.settings().Retry, d.ledger.volumeFailed(name), err, jitter)
		klog.FromContext(ctx).V(2).Info("Cannot take the finalizer from the PersistentVolume, will try again",
			"persistentVolume", name, "in", delay, "err", err)
		d.queue.DoneFor(it, releaseLane, delay)
		return
	}
	d.ledger.volumeDone(name)
	d.queue.Done(it)
}

// refreshVolume reads a PersistentVolume anew. If that fails, the watch will tell.
func (d *driver) refreshVolume(ctx context.Context, name string) {
	if name == "" {
		return
	}
	if pv, err := d.cluster.ReadVolume(ctx, name); err == nil && pv != nil {
		d.overlay.PersistentVolumeWritten(pv)
	}
}
