package hub

import (
	"context"
	"errors"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// workOnFinalizer removes the driver's finalizer from a PersistentVolume that is being deleted or was migrated
// back, once no VolumeAttachment names it and its volume cannot be published any more.
func (l *leader) workOnFinalizer(ctx context.Context, e *volume.Entry) {
	name := e.Key.Name
	pv := l.overlay.Volume(name)
	var patch *attach.Patch
	if pv != nil {
		patch = l.decider().ReleaseVolume(pv, l.cluster.VolumeInUse(name))
	}
	if patch == nil {
		l.table.Done(e)
		return
	}
	retry := l.settings().Retry
	claimed, published := l.table.Withholds(name, attach.VolumeHandle(pv), l.settings().StuckAfter, time.Now())
	switch {
	case claimed: // its VolumeAttachment has just been deleted, and a worker may still detach it
		l.table.DoneFor(e, volume.FinalizerLane, retry.Initial)
		return
	case published: // it must not be deleted before it is unpublished
		l.table.DoneFor(e, volume.FinalizerLane, retry.Max)
		return
	}
	known, err := l.knowsAll(ctx)
	if err == nil && !known {
		l.table.DoneFor(e, volume.FinalizerLane, staleCachePause)
		return
	}
	if err == nil {
		err = l.attacher().ReleaseVolume(ctx, patch)
	}
	if errors.Is(err, attach.ErrStale) {
		l.refreshVolume(ctx, name)
	}
	switch {
	case isFenced(err):
		l.table.Postpone(e, e.Lane(), fencePause)
	case err != nil:
		delay := backoff(retry, e.Retries.Failed(attach.Detaching, time.Now()), err, jitter)
		l.logger.V(2).Info("Failed to remove the finalizer from the PersistentVolume, will retry",
			"persistentVolume", name, "volumeHandle", attach.VolumeHandle(pv), "failures", e.Retries.Failures, "retryIn", delay, "err", err)
		l.table.DoneFor(e, volume.FinalizerLane, delay)
	default:
		l.table.Done(e)
	}
}

// refreshVolume reads a PersistentVolume again. If that fails, the watch will report its state.
func (l *leader) refreshVolume(ctx context.Context, name string) {
	if name == "" {
		return
	}
	if pv, err := l.cluster.ReadVolume(ctx, name); err == nil && pv != nil {
		l.overlay.PersistentVolumeWritten(pv)
	}
}
