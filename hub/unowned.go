package hub

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// ownerPause is how long it takes until it is looked at again who owns a volume.
const ownerPause = time.Second

// errCannotDetach says that a volume stays attached because nobody can be asked to detach it.
var errCannotDetach = errors.New("the driver no longer has PUBLISH_UNPUBLISH_VOLUME and cannot be asked to detach what it attached")

// workOnUnowned detaches a volume from where no VolumeAttachment owns it, as far as this process knows:
// the deletion of one raced with its finalizer, somebody took the finalizer (kubernetes/kubernetes
// issue 124749), or it wants the volume at another target now. If another one owns it there, it
// is left to that.
func (d *driver) workOnUnowned(ctx context.Context, e *volume.Entry) {
	target := e.Key.Target
	u, ok := d.table.Unowned(target)
	if !ok {
		d.table.Done(e)
		return
	}
	if e.Retries.Since.IsZero() {
		e.Retries.Since = time.Now()
		if !d.table.HasDisowned(u.FormerOwner, target) {
			klog.FromContext(ctx).Info("VolumeAttachment is gone with its volume still attached, detaching it",
				"volumeAttachment", u.FormerOwner.Name, "volumeHandle", target.VolumeHandle, "node", u.FormerOwner.Node)
		}
	}
	retryMax := d.desired.settings().Retry.Max
	switch decider := d.decider(); {
	case !decider.Capabilities.PublishUnpublish && decider.NoAttach: // the driver attaches nothing, and says so twice
		d.table.Resolve(target)
		d.table.Done(e)
		return
	case !decider.Capabilities.PublishUnpublish:
		d.unownedFailed(u, errCannotDetach, time.Now())
		d.table.DoneFor(e, volume.DetachLane, retryMax)
		return
	}
	if !d.table.Reserve(e, volume.Place{Target: target, Node: u.FormerOwner.Node, Shared: d.isLeftShared(u.FormerOwner, u.Record)}) {
		return
	}
	owner, err := d.owners(ctx, u.FormerOwner, target)
	switch owner {
	case volume.Owned:
		d.table.ResolveOwned(u)
		d.table.Done(e)
		return
	case volume.Wanted, volume.Unclear:
		klog.FromContext(ctx).V(2).Info("Not detached, as it is not sure that no VolumeAttachment has it there", "volumeHandle", target.VolumeHandle, "node", u.FormerOwner.Node, "err", err)
		if err == nil {
			err = errOwnerUnclear
		}
		if d.table.UnownedWaits(target, err, time.Now()) < retryMax {
			// Who wants it there may publish it, or go again: an attach elsewhere waits as long.
			d.table.Postpone(e, e.Lane(), ownerPause)
			return
		}
		if owner == volume.Unclear {
			d.table.DoneFor(e, volume.DetachLane, retryMax)
			return
		} // else who wants it there cannot publish it now, and publishes it again later
	}
	err = d.unpublish(ctx, u.Publication, target, nil)
	switch {
	case err == nil:
		klog.FromContext(ctx).Info("Detached a volume from where no VolumeAttachment has it any more", "volumeHandle", target.VolumeHandle, "node", u.FormerOwner.Node)
		d.table.Resolve(target)
		d.table.Done(e)
	case isFenced(err):
		d.table.Postpone(e, e.Lane(), fencePause)
	default:
		d.countAway(e, err)
		if waitsForDriver(e, err) {
			d.table.DoneFor(e, volume.DetachLane, 0)
			return
		}
		d.retryUnowned(ctx, e, u, err)
	}
}

// retryUnowned ends the run of an entry that could not detach, for good if it is hopeless.
func (d *driver) retryUnowned(ctx context.Context, e *volume.Entry, u volume.Unowned, err error) {
	now, settings := time.Now(), d.desired.settings()
	u, ok := d.unownedFailed(u, err, now)
	if !ok {
		d.table.Done(e)
		return
	}
	if u.Hopeless(settings.StuckAfter, d.sinceConnected(), now) {
		d.logger.Info("Gave up to detach a volume: the driver does not know it there", "volumeHandle", u.Target.VolumeHandle, "nodeID", u.Target.NodeID,
			"node", u.FormerOwner.Node, "volumeAttachment", u.FormerOwner.Name, "tries", u.Failures, "lastError", u.Error)
		d.events.gaveUp(u)
		d.tally.metrics.GaveUp()
		d.table.Resolve(u.Target)
		d.table.Done(e)
		return
	}
	delay := backoff(settings.Retry, u.Failures, err, jitter)
	klog.FromContext(ctx).V(2).Info("Cannot detach a volume whose VolumeAttachment is gone, will try again",
		"volumeHandle", u.Target.VolumeHandle, "node", u.FormerOwner.Node, "failures", u.Failures, "in", delay, "err", err)
	if attach.NotReady(err) { // the driver was not asked: an attach elsewhere waits until it is
		d.table.Postpone(e, volume.DetachLane, delay)
		return
	}
	d.table.DoneFor(e, volume.DetachLane, delay)
}

// unownedFailed takes in that the detach of an unowned publication has failed, and returns how it
// stands, and whether there is still one.
func (d *driver) unownedFailed(u volume.Unowned, err error, now time.Time) (volume.Unowned, bool) {
	u, ok := d.table.UnownedFailed(u.Target, err, now)
	if !ok {
		return u, false
	}
	d.events.failed(goneObject(u.FormerOwner), attach.Detaching, err)
	d.tally.failedWith(err, status.Failure{Time: now, Operation: status.Detach, VolumeAttachment: u.FormerOwner.Name, Text: u.Error}, now.Sub(u.Since))
	return u, true
}

// isLeftShared reports whether a volume that was published at a target is surely a multi-node one, now
// and as it was published. The PersistentVolume may be gone.
func (d *driver) isLeftShared(left volume.Identity, r attach.Record) bool {
	var pv *corev1.PersistentVolume
	if left.PersistentVolume != "" {
		if pv = d.overlay.Volume(left.PersistentVolume); pv == nil {
			pv = d.cluster.DeletedVolume(left.PersistentVolume)
		}
	}
	return r.SurelyMultiNode(pv)
}

// sinceConnected is when the session of the moment began.
func (d *driver) sinceConnected() time.Time {
	if s := d.connection.session.Load(); s != nil {
		return s.since
	}
	return time.Now()
}

// unowned returns the unowned publications, the oldest first and not more than are shown, and how many
// there are.
func (d *driver) unowned() ([]status.UnownedPublication, int) {
	all := d.table.UnownedAll()
	shown := make([]status.UnownedPublication, min(len(all), status.MostUnowned))
	for i := range shown {
		u := all[i]
		shown[i] = status.UnownedPublication{
			VolumeHandle:     u.Target.VolumeHandle,
			NodeID:           u.Target.NodeID,
			Node:             u.FormerOwner.Node,
			PersistentVolume: u.FormerOwner.PersistentVolume,
			VolumeAttachment: u.FormerOwner.Name,
			Since:            u.Since,
			Tries:            u.Failures,
			LastError:        u.Error,
		}
		if e, ok := d.table.Look(u.Key()); ok && e.State == volume.Delayed {
			shown[i].NextTry = e.Due
		}
	}
	return shown, len(all)
}
