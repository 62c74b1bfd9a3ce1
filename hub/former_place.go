package hub

import (
	"context"
	"errors"
	"slices"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// formerTries is how often a driver is asked to detach a volume where it was before a detach
// goes on without. With a driver that hangs each takes its timeout.
const formerTries = 3

// leaveFormerPlace detaches a volume where it was, if that is not where it is to be attached
// or detached now: its node has come back under another ID, say. The note of that place
// is all that other processes would find it by, so it is done before the note goes with
// the finalizer, or is replaced. If the driver does not do it, an attach goes on at once
// and a detach after a few tries (csi-attacher asks for the new ID only): what is left is
// seen to from memory then. With errParked the item has left its worker.
func (d *driver) leaveFormerPlace(ctx context.Context, it *item, r *record, plan attach.Plan) error {
	was := r.progress.Target
	if !r.progress.MayBeAttached() || was == plan.Target || was == r.abandoned {
		return nil
	}
	if !d.takeTurn(it, was, d.leftMultiNode(r)) || !d.queue.TakePlace(it, r.node) {
		return errParked
	}
	heir, err := d.claimedElsewhere(ctx, r, plan.Operation, was)
	if err != nil {
		return err
	}
	// Who only wants it there has it attached again.
	if heir == noHeir || heir == heirWaits && plan.Operation == attach.Detaching {
		err := d.attacher().UnpublishKnown(ctx, &r.progress)
		if call := (*attach.CallError)(nil); errors.As(err, &call) && !isFenced(err) {
			r.former++
		}
		if err == nil {
			r.former = 0
			return nil
		}
		if r.former < d.triesAtFormer(plan) || isAway(err) && r.aways < aloneAfter {
			return err
		}
	}
	r.former = 0
	d.queue.Add(d.ledger.abandon(r), detachLane)
	return nil
}

// claimedElsewhere says who else has a volume at a target where a VolumeAttachment has it, or had
// it. The API server is asked only about those that seem to, if the VolumeAttachment is
// being deleted: it has no successor of its name yet.
func (d *driver) claimedElsewhere(ctx context.Context, r *record, op attach.Operation, target attach.Target) (inheritance, error) {
	if op == attach.Attaching {
		return d.heir(ctx, r)
	}
	return d.claimed(ctx, r, target, d.surely(target, d.claimants(r, target, nil)))
}

// surely returns those of some VolumeAttachments that are about the volume of a target: one of
// which nobody can tell keeps nothing else from being detached.
func (d *driver) surely(target attach.Target, names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool {
		va := d.overlay.Attachment(name)
		if va == nil {
			return true
		}
		return attach.HandleOf(d.orphanFacts(va)) != target.VolumeHandle
	})
}

// leavesToAnother says whether a VolumeAttachment is to be let go without a call, because
// another one has its volume attached at the same target: the call would take the volume from
// under that one's Pods. An error says that this cannot be told now.
func (d *driver) leavesToAnother(ctx context.Context, r *record, plan attach.Plan) (bool, error) {
	if plan.Unpublish == nil {
		return false, nil
	}
	owner, err := d.claimedElsewhere(ctx, r, attach.Detaching, plan.Target)
	if owner == heirUnclear && err == nil {
		err = errOwnerUnclear
	}
	return owner == heirFound, err
}

func (d *driver) triesAtFormer(plan attach.Plan) int {
	if plan.Operation == attach.Attaching {
		return 1
	}
	return formerTries
}
