package reconcile

import (
	"context"
	"errors"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

// workOnFinalizer removes the driver's finalizer from a PersistentVolume that is being deleted or was migrated
// back, once no VolumeAttachment names it and its volume cannot be published any more.
func (l *Worker) workOnFinalizer(ctx context.Context, e *queue.Item) {
	name := e.Key.Name
	pv := l.Overlay.Volume(name)
	var patch *attach.Patch
	if pv != nil {
		patch = l.Decider().ReleaseVolume(pv, l.Cluster.VolumeInUse(name))
	}
	if patch == nil {
		l.Queue.End(e, queue.Finished)
		return
	}
	retry := l.Settings().Retry
	var wait time.Duration // until the finalizer may go
	var err error
	switch claimed, published := l.Table.Withholds(name, pv.Handle, l.Settings().StuckAfter, time.Now()); {
	case claimed: // its VolumeAttachment has just been deleted, and a worker may still detach it
		wait = retry.Initial
	case published: // it must not be deleted before it is unpublished
		wait = retry.Max
	default:
		var known bool
		if known, err = l.knowsAll(ctx); err == nil && !known {
			wait = staleCachePause
		} else if err == nil {
			err = l.attacher(e.Key).ReleaseVolume(ctx, patch)
		}
	}
	if errors.Is(err, attach.ErrStale) {
		l.refreshVolume(ctx, name)
	}
	switch {
	case wait > 0:
		l.Queue.End(e, queue.BackOff(queue.FinalizerLane, wait))
	case isFenced(err):
		l.Queue.End(e, queue.Postpone(e.Lane, fencePause))
	case err != nil:
		delay := backoff(retry, l.Queue.Failed(e, attach.Detaching, attach.Message(err), causeOf(err)), err, jitter)
		l.Logger.V(2).Info("Failed to remove the finalizer from the PersistentVolume, will retry",
			"persistentVolume", name, "volumeHandle", pv.Handle, "failures", e.Tries, "retryIn", delay, "err", err)
		l.Queue.End(e, queue.BackOff(queue.FinalizerLane, delay))
	default:
		l.Queue.End(e, queue.Finished)
	}
}

// refreshVolume reads a PersistentVolume again. If that fails, the watch will report its state.
func (l *Worker) refreshVolume(ctx context.Context, name string) {
	if pv, err := l.Cluster.ReadVolume(ctx, name); err == nil && pv != nil {
		l.Overlay.PersistentVolumeWritten(pv)
	}
}
