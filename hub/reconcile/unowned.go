package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// workOnUnowned detaches a volume from a target where no VolumeAttachment owns it, as far as this process
// knows: the deletion of its VolumeAttachment raced with the finalizer, a client removed the finalizer
// (kubernetes/kubernetes issue 124749), or the VolumeAttachment wants another target now. If another
// VolumeAttachment owns the volume there, that VolumeAttachment keeps it.
func (l *Worker) workOnUnowned(ctx context.Context, e *queue.Item) {
	target := e.Key.Target
	u, ok := l.Table.Unowned(target)
	if !ok {
		l.Queue.End(e, queue.Finished)
		return
	}
	logger := l.UnownedLogger(u)
	ctx = klog.NewContext(ctx, logger)
	if e.Retries.Since.IsZero() {
		e.Retries.Since = time.Now()
		if !u.Listed && !slices.Contains(l.Table.Look(u.FormerOwner.Name, u.FormerOwner.UID).Disowned, target) {
			l.logLine(logger, true, "VolumeAttachment is gone while its volume is attached, detaching the volume")
		}
	}
	if !l.canDetach(e, u) || !l.Queue.MayCall(e, queue.Place{Target: target, Node: u.FormerOwner.Node, Shared: l.isSurelyShared(u.FormerOwner, u.Record)}) {
		return
	}
	var err error
	if !u.Listed { // else whyKept asks for all reasons
		err = l.wasInUse(u)
	}
	if err == nil {
		err = l.whyKept(ctx, l.newRound(), u)
	}
	if err == nil {
		err = l.unpublish(ctx, e.Key, u.Publication, target, nil)
	}
	l.endUnowned(ctx, e, u, err)
}

// canDetach reports whether the driver can be asked to detach what it attached. If not, the run of the item has ended.
func (l *Worker) canDetach(e *queue.Item, u volume.Unowned) bool {
	decider := l.Decider()
	switch {
	case decider.Capabilities.PublishUnpublish:
		return true
	case decider.NoAttach: // both the driver and its CSIDriver say that it attaches nothing
		l.Table.Resolve(u.Target)
		l.Queue.End(e, queue.Finished)
	default:
		l.unownedFailed(u, errCannotDetach, time.Now())
		l.Queue.End(e, queue.BackOff(queue.DetachLane, l.Settings().Retry.Max))
	}
	return false
}

// errKept ends an unowned publication without a call: why a volume that only the driver reports is not detached, or "" because a
// VolumeAttachment has the volume at the target.
type errKept string

func (e errKept) Error() string { return cmp.Or(string(e), "a VolumeAttachment has the volume there") }

// whyKept returns nil if an unowned publication may be unpublished now: errKept, errOwnerUnclear or errInUse if not, another
// error if that cannot be found out. It blocks until the API server has returned the possible owners and the node.
func (l *Worker) whyKept(ctx context.Context, r round, u volume.Unowned) error {
	owner, err := l.owners(ctx, u.FormerOwner, u.Target, false)
	switch {
	case u.Listed && err == nil && owner != volume.NoOwner:
		return errKept("a VolumeAttachment asks for it there by now")
	case owner == volume.Owned:
		return errKept("")
	case owner != volume.NoOwner && err != nil:
		return fmt.Errorf("%w (%w)", errOwnerUnclear, err)
	case owner != volume.NoOwner:
		return errOwnerUnclear
	case u.Listed:
		if kept := l.Drift.WhyKeptNow(ctx, u.Target); kept != "" {
			return errKept(kept)
		}
		return nil
	}
	return l.checkUnowned(ctx, r, u)
}

// endUnowned ends the run of an item. err is why the volume was not detached, nil if it was.
func (l *Worker) endUnowned(ctx context.Context, e *queue.Item, u volume.Unowned, err error) {
	logger := klog.FromContext(ctx)
	var kept errKept
	end := queue.Finished
	switch {
	case err == nil:
		l.logSucceeded(logger, attach.Detaching, u.Failures, u.Failures > 0, time.Since(u.Since))
		l.Table.Detached(u.Target, u.FormerOwner.Node)
	case errors.As(err, &kept):
		if kept != "" {
			l.logLine(logger, true, "Not detaching the volume that the driver reports on this node", "reason", kept)
		}
		l.Table.ResolveOwned(u)
	case isFenced(err):
		end = queue.Postpone(e.Lane, fencePause)
	case errors.Is(err, errOwnerUnclear):
		logger.V(2).Info("Not detaching the volume yet: a VolumeAttachment may want it on this node", "err", err)
		// The VolumeAttachment that wants the volume there may publish it, or be deleted. Until then an
		// attach elsewhere waits too, but not for longer than retry.max.
		end = queue.Postpone(e.Lane, ownerPause)
		if most := l.Settings().Retry.Max; l.Table.UnownedWaits(u.Target, err, time.Now()) >= most {
			end = queue.BackOff(queue.DetachLane, most)
		}
	default:
		if waitsForDriver(e, err) {
			end = queue.Again(queue.DetachLane)
			break
		}
		l.retryUnowned(ctx, e, u, err)
		return
	}
	l.Queue.End(e, end)
}

// retryUnowned ends the run of an item whose detach failed. It ends the publication too if further tries are
// hopeless.
func (l *Worker) retryUnowned(ctx context.Context, e *queue.Item, u volume.Unowned, err error) {
	now, settings := time.Now(), l.Settings()
	u, ok := l.unownedFailed(u, err, now)
	if !ok {
		l.Queue.End(e, queue.Finished)
		return
	}
	l.Queue.Failed(e, attach.Detaching, attach.Message(err), causeOf(err))
	if u.Hopeless(settings.StuckAfter, l.sinceConnected(), now) {
		l.logLine(klog.FromContext(ctx), true, "Gave up detaching volume: the driver reports that it is not there", "failures", u.Failures, "err", u.Error)
		l.Warn(l.eventObject(u), detachGivenUp, fmt.Sprintf("gave up detaching volume %q from node ID %q after %d tries: the driver reports that it is not there: %s",
			u.Target.VolumeHandle, u.Target.NodeID, u.Failures, u.Error))
		l.Table.Resolve(u.Target)
		l.Queue.End(e, queue.Finished)
		return
	}
	delay := l.retryIn(e, attach.Detaching, u.Failures, err)
	used := errors.As(err, &errInUse{})
	if used {
		delay = settings.Retry.Max - time.Duration(jitter()*float64(settings.Retry.Max)/5) // one read of the node then tells of all
	}
	l.logFailed(klog.FromContext(ctx), attach.Detaching, u.Failures, delay, err)
	if used || attach.NotReady(err) { // the driver was not called: an attach elsewhere has to wait for this detach
		l.Queue.End(e, queue.Postpone(queue.DetachLane, delay))
		return
	}
	l.Queue.End(e, queue.BackOff(queue.DetachLane, delay))
}

// unownedFailed notes that the detach of an unowned publication has failed. It returns the present state of the
// publication, and whether the publication still exists.
func (l *Worker) unownedFailed(u volume.Unowned, err error, now time.Time) (volume.Unowned, bool) {
	u, ok := l.Table.UnownedFailed(u.Target, err, now)
	if !ok {
		return u, false
	}
	l.Warn(l.eventObject(u), titleOf(attach.Detaching)+failedEvent, err.Error())
	l.Failed(err, status.Failure{Time: now, Operation: status.Detach, VolumeAttachment: u.FormerOwner.Name, Text: u.Error, Cause: causeOf(err)}, now.Sub(u.Since))
	return u, true
}

// eventObject returns the object for Events about an unowned publication: its former VolumeAttachment or, if there is none,
// its PersistentVolume.
func (l *Worker) eventObject(u volume.Unowned) runtime.Object {
	if !u.Listed {
		return formerObject(u.FormerOwner)
	}
	if v := l.Overlay.Volume(u.FormerOwner.PersistentVolume); v != nil {
		return v.Object()
	}
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: u.FormerOwner.PersistentVolume}}
}

// isSurelyShared reports whether a volume that was published for a VolumeAttachment is surely a multi-node
// volume, now and as it was published. Its PersistentVolume may be gone.
func (l *Worker) isSurelyShared(publishedFor volume.Identity, r attach.Record) bool {
	return r.SurelyMultiNode(l.Overlay.VolumeOrDeleted(publishedFor.PersistentVolume))
}

// sinceConnected returns when the latest session began.
func (l *Worker) sinceConnected() time.Time {
	if s := l.Session(); s != nil {
		return s.Since()
	}
	return time.Now()
}
