package hub

import (
	"context"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// formerTries is how often in a row a detach tries the place where the volume was before.
const formerTries = 3

// leaveFormerPlace detaches a volume where it was, if that is not where it is to be attached
// or detached now: its node has come back under another ID, say. The note of that place
// is all that other processes would find it by, so it is done before the note goes with
// the finalizer, or is replaced. If the driver does not do it, an attach goes on at once
// and a detach after a few tries (csi-attacher asks for the new ID only): what is left is
// seen to from memory then.
func (d *driver) leaveFormerPlace(ctx context.Context, it *item, r *record, plan attach.Plan) error {
	was := r.progress.Target
	if !r.progress.MayBeAttached() || was == plan.Target || was == r.abandoned {
		return nil
	}
	if !d.queue.TakeTurn(it, was.VolumeHandle) {
		return errParked
	}
	if plan.Operation == attach.Detaching || d.heir(ctx, r) == noHeir {
		err := d.attacher().Unpublish(ctx, &r.progress)
		tried := plan.Operation == attach.Attaching || r.tries.operation == attach.Detaching && r.tries.failures >= formerTries
		if err == nil || isFenced(err) || isAway(err) || !tried {
			return err
		}
	}
	d.queue.Add(d.ledger.abandon(r), detachLane)
	return nil
}
