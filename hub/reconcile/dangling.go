package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// ownerPause is the pause before the owners of a volume are read again.
const ownerPause = time.Second

// errCannotDetach means that a volume stays attached because the driver cannot detach it any more.
var errCannotDetach = errors.New("the driver no longer has PUBLISH_UNPUBLISH_VOLUME and cannot be asked to detach what it attached")

// workOnDangling detaches a volume from a target where no VolumeAttachment owns it, as far as this process
// knows: the deletion of its VolumeAttachment raced with the finalizer, a client removed the finalizer
// (kubernetes/kubernetes issue 124749), or the VolumeAttachment requires another target now. If another
// VolumeAttachment owns the volume there, that VolumeAttachment keeps it.
func (w *Worker) workOnDangling(ctx context.Context, e *queue.Item) {
	target := e.Key.Target
	u, ok := w.Table.Dangling(target)
	decider := w.Decider()
	canDetach := decider.Capabilities.PublishUnpublish
	if !ok || !canDetach && decider.NoAttach { // both the driver and its CSIDriver say that it attaches nothing
		w.Table.Resolve(u)
		w.Queue.End(e, queue.Finished)
		return
	}
	logger := w.DanglingLogger(u)
	ctx = klog.NewContext(ctx, logger)
	if e.Retries.Since.IsZero() {
		e.Retries.Since = time.Now()
		if !u.FromList && !slices.Contains(w.Table.Look(u.FormerOwner.Name, u.FormerOwner.UID).Disowned, target) {
			w.logLine(logger, true, "VolumeAttachment is gone while its volume is attached, detaching the volume")
		}
	}
	err := errCannotDetach
	if canDetach {
		if !w.Queue.MayCall(e, queue.Destination{Target: target, Node: u.FormerOwner.Node, Shared: w.isSurelyShared(u.FormerOwner, u.Record)}) {
			return
		}
		r := w.newRound()
		lately := round{nodes: r.nodes} // the nodes that were read lately and since the last try
		since := slices.MaxFunc([]time.Time{u.Failed, time.Now().Add(-w.Settings().Retry.Max)}, time.Time.Compare)
		lately.read = func(_ context.Context, name string) (*corev1.Node, error) { return w.nodes.Last(name, since), nil }
		if err = nil; !u.FromList { // else detachDangling looks for all reasons
			err = w.checkDanglingUnused(ctx, lately, u)
		}
		if err == nil {
			err = w.detachDangling(ctx, r, u)
		}
	}
	w.Queue.End(e, w.endOfDangling(ctx, e, u, err))
}

// detachDangling detaches a dangling publication and ends it, unless a VolumeAttachment has the volume at the target, or the driver
// alone reports it and it is to stay: then it only ends it. It returns errOwnerUnclear or errInUse if the publication may not be
// unpublished now, another error if it failed or that cannot be found out. It blocks until the API server has returned the possible
// owners and the node, and the driver has answered.
func (w *Worker) detachDangling(ctx context.Context, r round, u volume.Dangling) error {
	logger, kept := w.DanglingLogger(u), ""
	owner, err := w.owners(ctx, u.FormerOwner, u.Target, false)
	switch {
	case u.FromList && err == nil && owner != volume.NoOwner:
		kept = "a VolumeAttachment needs it there now"
	case owner == volume.Owned:
		w.Table.Resolve(u)
		return nil
	case owner != volume.NoOwner && err != nil:
		return fmt.Errorf("%w (%w)", errOwnerUnclear, err)
	case owner != volume.NoOwner:
		return errOwnerUnclear
	case u.FromList:
		kept = w.Drift.WhyKeptNow(ctx, u.Target)
	default:
		err = w.checkDanglingUnused(ctx, r, u)
	}
	if kept != "" {
		w.logLine(logger, true, "Not detaching the volume that the driver reports on this node", "reason", kept)
		w.Table.Resolve(u)
		return nil
	}
	if err == nil {
		err = w.unpublish(ctx, u.Key(), u.Publication, u.Target, nil)
	}
	if err == nil {
		w.logSucceeded(logger, attach.Detaching, u.Failures+1, u.Failures > 0, time.Since(u.Since))
		w.Table.Detached(u.Target, u.FormerOwner.Node)
	}
	return err
}

// endOfDangling returns how the run of an item ends. err is why the volume was not detached, nil if it was or is to stay.
// It ends the publication too if further tries are hopeless.
func (w *Worker) endOfDangling(ctx context.Context, e *queue.Item, u volume.Dangling, err error) queue.End {
	logger, settings, now := klog.FromContext(ctx), w.Settings(), time.Now()
	switch {
	case err == nil:
		return queue.Finished
	case isFenced(err):
		return queue.RequeueAfter(e.Lane, fencePause)
	case errors.Is(err, errOwnerUnclear):
		logger.V(2).Info("Not detaching the volume yet: a VolumeAttachment may want it on this node", "err", err)
		// The VolumeAttachment that requires the volume there may publish it, or be deleted. Until then an
		// attach elsewhere waits too, but not for longer than retry.max.
		w.Table.DanglingFailed(u.Target, err, false, now)
		if now.Sub(slices.MaxFunc([]time.Time{u.Failed, e.Retries.Since}, time.Time.Compare)) >= settings.Retry.Max { // without a try
			return queue.BackOff(queue.DetachLane, settings.Retry.Max)
		}
		return queue.RequeueAfter(e.Lane, ownerPause)
	}
	if waitsForDriver(e, err) {
		return queue.Requeue(queue.DetachLane)
	}
	u, ok := w.Table.DanglingFailed(u.Target, err, true, now)
	if !ok {
		return queue.Finished
	}
	cause := causeOf(err)
	var object runtime.Object = formerObject(u.FormerOwner)
	if name := u.FormerOwner.PersistentVolume; u.FromList { // there is no former VolumeAttachment
		object = cmp.Or(w.Overlay.Volume(name), &attach.Volume{Name: name}).Object()
	}
	w.Warn(object, titleOf(attach.Detaching)+failedEvent, err.Error())
	w.Failed(err, status.Failure{Time: now, Operation: status.Detach, VolumeAttachment: u.FormerOwner.Name, Text: u.Error, Cause: cause}, now.Sub(u.Since))
	w.Queue.Failed(e, attach.Detaching, attach.Message(err), cause)
	if s := w.Session(); s != nil && u.Hopeless(settings.StuckAfter, s.Since(), now) {
		w.logError(logger, true, err, "Gave up detaching volume: the driver reports that it is not there", "operation", attach.Detaching.String(), "tries", u.Failures)
		w.Warn(object, detachGivenUp, fmt.Sprintf("gave up detaching volume %q from node ID %q after %d tries: the driver reports that it is not there: %s",
			u.Target.VolumeHandle, u.Target.NodeID, u.Failures, u.Error))
		w.Table.Resolve(u)
		return queue.Finished
	}
	delay := w.retryIn(e, attach.Detaching, u.Failures, err)
	used := errors.Is(err, errInUse)
	if used || errors.Is(err, errCannotDetach) {
		delay = settings.Retry.Max - time.Duration(jitter()*float64(settings.Retry.Max)/5) // one read of the node then tells of all
	}
	w.logFailed(logger, e, attach.Detaching, u.Failures, cause, delay, err)
	if used || attach.NotReady(err) { // the driver was not called: an attach elsewhere must wait for this detach
		return queue.RequeueAfter(queue.DetachLane, delay)
	}
	return queue.BackOff(queue.DetachLane, delay)
}

// isSurelyShared reports whether a volume that was published for a VolumeAttachment is surely a multi-node
// volume, now and as it was published. Its PersistentVolume may be gone.
func (w *Worker) isSurelyShared(publishedFor volume.Identity, r attach.Record) bool {
	return r.SurelyMultiNode(w.Overlay.VolumeOrDeleted(publishedFor.PersistentVolume))
}
