package hub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// workOnOrphan detaches a volume that was left attached by a VolumeAttachment that
// is gone (its deletion raced with the finalizer, or somebody took the finalizer:
// kubernetes/kubernetes issue 124749) or that is about another place now, unless another
// one has it there.
func (d *driver) workOnOrphan(ctx context.Context, it *item) {
	r := d.ledger.orphan(it.key)
	if r == nil {
		d.queue.Done(it)
		return
	}
	if !d.decider().Capabilities.PublishUnpublish {
		d.unownedFailed(r, errCannotDetach, time.Now())
		d.queue.DoneFor(it, detachLane, d.desired.settings().Retry.Max)
		return
	}
	handle := r.progress.Target.VolumeHandle
	// First the turn, so that nobody attaches it there while that is asked.
	if !d.takeTurn(it, r.progress.Target, d.leftMultiNode(r)) {
		return
	}
	if d.ledger.orphan(it.key) != r { // its VolumeAttachment came to see to that place again meanwhile
		d.queue.DoneFor(it, detachLane, 0)
		return
	}
	switch heir, err := d.heir(ctx, r); heir {
	case heirFound:
		d.ledger.buried(it.key, r)
		d.queue.Done(it)
		return
	case heirWaits, heirUnclear:
		klog.FromContext(ctx).V(2).Info("Not detached where no VolumeAttachment surely has it, will look again", "volumeHandle", handle, "node", r.node, "err", err)
		if err == nil {
			err = errOwnerUnclear
		}
		if d.ledger.unownedWaits(r, err, time.Now()) < d.desired.settings().Retry.Max {
			// Who wants it there may go again: an attach elsewhere waits as long.
			d.queue.Postpone(it, ownerPause)
			return
		}
		d.queue.DoneFor(it, detachLane, d.desired.settings().Retry.Max)
		return
	}
	err := d.attacher().UnpublishKnown(ctx, &r.progress)
	switch {
	case err == nil:
		klog.FromContext(ctx).Info("Detached a volume where no VolumeAttachment has it any more", "volumeHandle", handle, "node", r.node)
		d.ledger.buried(it.key, r)
		d.queue.Done(it)
	case isFenced(err):
		d.queue.Postpone(it, fencePause)
	case d.waitsOut(r, err):
		d.queue.DoneFor(it, detachLane, 0)
	default:
		now := time.Now()
		state := d.unownedFailed(r, err, now)
		if state.hopeless(d.desired.settings().StuckAfter, d.sinceConnected(), now) {
			d.giveUp(r, it.key, state)
			d.queue.Done(it)
			return
		}
		delay := backoff(d.desired.settings().Retry, state.failures, err, jitter)
		klog.FromContext(ctx).V(2).Info("Cannot detach a volume whose VolumeAttachment is gone, will try again",
			"volumeHandle", handle, "node", r.node, "failures", state.failures, "in", delay, "err", err)
		d.queue.DoneFor(it, detachLane, delay)
	}
}

// ownerPause is how long it takes until it is looked at again who has a volume.
const ownerPause = time.Second

// errCannotDetach says that a volume stays attached because nobody can be asked to detach it.
var errCannotDetach = errors.New("the driver no longer has PUBLISH_UNPUBLISH_VOLUME and cannot be asked to detach what it attached")

// errOwnerUnclear says that a volume is not detached because a VolumeAttachment may have it where
// it is.
var errOwnerUnclear = errors.New("another VolumeAttachment may have the volume at this node ID: this is looked at again")

// inheritance is who has an orphan's volume now. What comes later counts for more.
type inheritance int

const (
	noHeir      inheritance = iota
	heirWaits               // one wants it there, and has not called the driver as far as is known
	heirUnclear             // it cannot be told now
	heirFound               // a VolumeAttachment whose deletion detaches it
)

// askFor bounds how long the API server is asked for a VolumeAttachment, again and again.
const askFor = 2 * time.Second

// heir says who has an orphan's volume where it is, besides the VolumeAttachment that left
// it there. The API server is asked about the one of the same name too: names are made of
// volume, driver and node, and come again. It blocks for as long as that takes.
func (d *driver) heir(ctx context.Context, r *record) (inheritance, error) {
	return d.claimed(ctx, r, r.progress.Target, append([]string{r.attachment}, d.candidates(r)...))
}

// claimed says which of some VolumeAttachments has a volume at a target, besides the one that
// a record is of. The API server is asked about each: the cache may know neither of a begin nor
// of an end. An error comes with heirUnclear. It blocks for as long as that takes.
func (d *driver) claimed(ctx context.Context, r *record, target attach.Target, names []string) (inheritance, error) {
	found, failed := noHeir, error(nil)
	for _, name := range names {
		va, err := d.ask(ctx, name)
		if err != nil {
			found, failed = max(found, heirUnclear), fmt.Errorf("ask for volumeattachment %q: %w", name, err)
			continue
		}
		if va != nil && va.UID == r.uid && va.DeletionTimestamp == nil && va.Status.Attached && attach.NotedTarget(va) == target {
			// It is attached there once more, unless it is about to be attached elsewhere.
			if attach.HasFinalizer(va.Finalizers, d.finalizer) && !d.ledger.hasAbandoned(va, target) {
				return heirFound, nil
			}
			found = max(found, heirUnclear)
		}
		if va == nil || va.UID == r.uid || va.Spec.Attacher != d.name {
			continue
		}
		if found = max(found, d.claim(va, target)); found == heirFound {
			return found, nil
		}
	}
	return found, failed
}

// claim says whether one VolumeAttachment has the volume at a place.
func (d *driver) claim(va *storagev1.VolumeAttachment, place attach.Target) inheritance {
	may, surely := d.decider().Wants(d.orphanFacts(va), place)
	guarded := attach.HasFinalizer(va.Finalizers, d.finalizer)
	switch {
	case !may || va.DeletionTimestamp != nil:
		return noHeir
	case surely && guarded:
		return heirFound
	case guarded || va.Status.Attached:
		return heirUnclear
	}
	return heirWaits
}

// ask returns a VolumeAttachment as the API server has it now, nil if there is none. An API
// server that cannot answer is asked again for a while.
func (d *driver) ask(ctx context.Context, name string) (*storagev1.VolumeAttachment, error) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	for {
		va, err := d.cluster.ReadAttachment(ctx, name)
		if err == nil || ctx.Err() != nil || !attach.NotReady(err) {
			return va, err
		}
		sleep(ctx, fencePause)
	}
}

// candidates are the names of other VolumeAttachments that may have an orphan's volume where
// it is: those on its node, and those that claimants finds.
func (d *driver) candidates(r *record) []string {
	return d.claimants(r, r.progress.Target, d.cluster.AttachmentsOnNode(r.node))
}

// claimants are the names of other VolumeAttachments that may have a volume at a target, out
// of some and of those that are noted at its node ID or name the same PersistentVolume: a
// node ID may be that of another node by now.
func (d *driver) claimants(r *record, target attach.Target, some []*storagev1.VolumeAttachment) []string {
	decider := d.decider()
	var names []string
	for _, va := range slices.Concat(some, d.cluster.AttachmentsAtNodeID(target.NodeID), d.cluster.AttachmentsOfVolume(r.volume)) {
		noted := attach.NotedTarget(va)
		if va.Name == r.attachment || va.Spec.Attacher != d.name || va.DeletionTimestamp != nil || slices.Contains(names, va.Name) ||
			noted.VolumeHandle != "" && noted.VolumeHandle != target.VolumeHandle {
			continue
		}
		va = d.overlay.Newest(va)
		facts := d.orphanFacts(va)
		if facts.PersistentVolume == nil && !d.touched(va) && attach.VolumeName(va) != r.volume {
			continue // it waits for another PersistentVolume, and has nothing attached yet
		}
		if may, _ := decider.Wants(facts, target); may && va.DeletionTimestamp == nil {
			names = append(names, va.Name)
		}
	}
	return names
}

// orphanFacts is cachedFacts with the last state of a PersistentVolume that is gone.
func (d *driver) orphanFacts(va *storagev1.VolumeAttachment) attach.Facts {
	facts := d.cachedFacts(va)
	facts.PersistentVolume = d.overlay.CachedOrDeleted(va)
	return facts
}

// touched says whether anybody may have called the driver for a VolumeAttachment.
func (d *driver) touched(va *storagev1.VolumeAttachment) bool {
	return va.Status.Attached || attach.HasFinalizer(va.Finalizers, d.finalizer) || va.Spec.Source.InlineVolumeSpec != nil
}
