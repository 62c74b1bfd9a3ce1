package reconcile

import (
	"context"
	"errors"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

// workOnFinalizer removes the driver's finalizer from a PersistentVolume that is being deleted or was migrated
// back, once no VolumeAttachment names it and its volume cannot be published any more. It returns how the run ends.
func (w *Worker) workOnFinalizer(ctx context.Context, e *queue.Item) queue.End {
	name, settings := e.Key.Name, w.Settings()
	known, err := w.knowsAll(ctx) // before the cache is asked: it may learn of a VolumeAttachment meanwhile
	pv := w.Overlay.Volume(name)
	if pv == nil || !pv.LosesFinalizer(w.Driver) || w.Cluster.VolumeInUse(name) {
		return queue.Finished
	}
	switch named, published := w.Table.Withholds(name, pv.Handle, settings.StuckAfter, time.Now()); {
	case named: // its VolumeAttachment has just been deleted, and a worker may still detach it
		return queue.BackOff(queue.FinalizerLane, settings.Retry.Initial)
	case published: // it must not be deleted before it is unpublished
		return queue.BackOff(queue.FinalizerLane, settings.Retry.Max)
	case err == nil && !known:
		return queue.BackOff(queue.FinalizerLane, staleCachePause)
	}
	if err == nil {
		err = w.attacher(e.Key).RemoveVolumeFinalizer(ctx, pv, w.Driver)
	}
	switch {
	case err == nil:
		return queue.Finished
	case isFenced(err):
		return queue.RequeueAfter(e.Lane, fencePause)
	case errors.Is(err, attach.ErrStale):
		w.refreshVolume(ctx, name)
	}
	delay := backoff(settings.Retry, w.Queue.Failed(e, attach.Detaching, attach.Message(err), causeOf(err)), err, jitter)
	w.Logger.V(2).Info("Failed to remove the finalizer from the PersistentVolume, will retry",
		"persistentVolume", name, "volumeHandle", pv.Handle, "tries", e.Tries, "retryIn", delay, "err", err)
	return queue.BackOff(queue.FinalizerLane, delay)
}

// refreshVolume reads a PersistentVolume again. If that fails, the watch will report its state.
func (w *Worker) refreshVolume(ctx context.Context, name string) {
	if pv, err := w.Cluster.ReadVolume(ctx, name); err == nil && pv != nil {
		w.Overlay.PersistentVolumeWritten(pv)
	}
}
