package hub

import (
	"context"
	"errors"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// workOnFinalizer removes the driver's finalizer from a PersistentVolume that is being deleted, once no
// VolumeAttachment names it any more and nothing of it may be published.
func (d *driver) workOnFinalizer(ctx context.Context, e *volume.Entry) {
	name := e.Key.Name
	pv := d.overlay.Volume(name)
	var patch *attach.Patch
	if pv != nil {
		patch = d.decider().ReleaseVolume(pv, d.cluster.VolumeInUse(name))
	}
	if patch == nil {
		d.table.Done(e)
		return
	}
	retry := d.desired.settings().Retry
	claimed, published := d.table.Withholds(name, attach.VolumeHandle(pv), d.desired.settings().StuckAfter, time.Now())
	switch {
	case claimed: // its VolumeAttachment has just gone, maybe in the middle of its detach
		d.table.DoneFor(e, volume.FinalizerLane, retry.Initial)
		return
	case published: // and it must not be deleted before it is not
		d.table.DoneFor(e, volume.FinalizerLane, retry.Max)
		return
	}
	known, err := d.knowsAll(ctx)
	if err == nil && !known {
		d.table.DoneFor(e, volume.FinalizerLane, staleCachePause)
		return
	}
	if err == nil {
		err = d.attacher().ReleaseVolume(ctx, patch)
	}
	if errors.Is(err, attach.ErrStale) {
		d.refreshVolume(ctx, name)
	}
	switch {
	case isFenced(err):
		d.table.Postpone(e, e.Lane(), fencePause)
	case err != nil:
		delay := backoff(retry, e.Retries.Failed(attach.Detaching, time.Now()), err, jitter)
		klog.FromContext(ctx).V(2).Info("Cannot remove the finalizer from the PersistentVolume, will try again",
			"persistentVolume", name, "in", delay, "err", err)
		d.table.DoneFor(e, volume.FinalizerLane, delay)
	default:
		d.table.Done(e)
	}
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
