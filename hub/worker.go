package hub

import (
	"context"
	"errors"
	"slices"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// work runs one item of the queue to its end. The context ends when calls in
// flight have to: at the end of the grace when the driver drains.
func (d *driver) work(ctx context.Context, it *item) {
	switch it.key.kind {
	case attachmentWork:
		d.workOnAttachment(ctx, it)
	case orphanWork:
		d.workOnOrphan(ctx, it)
	case volumeWork:
		d.workOnVolume(ctx, it)
	}
	d.windDown.driver(d.name) // this may have been the last that was left of the driver
}

// workOnAttachment does what one VolumeAttachment needs and decides when to look
// at it again.
func (d *driver) workOnAttachment(ctx context.Context, it *item) {
	name := it.key.name
	logger := klog.FromContext(ctx).WithValues("volumeAttachment", name)
	va := d.overlay.Attachment(name)
	if r := d.ledger.get(name); r != nil && (va == nil || va.UID != r.uid) {
		if key, left := d.ledger.close(name); left {
			logger.Info("VolumeAttachment is gone with its volume still attached, detaching it")
			d.queue.Add(key, detachLane)
		}
	}
	d.ledger.found(name)
	if va == nil {
		d.queue.Done(it)
		return
	}
	r := d.ledger.open(va)
	old := va
	va, err := d.catchUp(ctx, old, r)
	if err != nil {
		op, _ := d.wanted(name)
		if d.isOfTheVolume(r, err) {
			d.saveError(ctx, old, r, op, err)
		}
		d.retry(ctx, it, r, op, err)
		return
	}
	if va == nil {
		d.queue.Done(it) // the watch will tell of its end
		return
	}
	r.progress.Adopt(va, d.overlay.CachedOrDeleted(va), d.finalizer)
	op, err := d.carryOut(klog.NewContext(ctx, logger), it, va, r)
	if errors.Is(err, errParked) {
		return
	}
	if isFenced(err) {
		d.queue.Postpone(it, fencePause)
		return
	}
	if err != nil {
		d.retry(ctx, it, r, op, err)
		return
	}
	if op != attach.Idle {
		d.tally.succeeded(operationOf(op), time.Since(it.since))
	}
	d.ledger.noteFailure(name, 0, nil)
	r.tries, r.aways = tries{}, 0
	d.ledger.setLost(va, false)
	d.queue.Changed(it) // what came meanwhile is looked at here
	switch next, l := d.wanted(name); {
	case next == attach.Idle && d.overlay.Attachment(name) == nil:
		// It went meanwhile; what it has left attached is found at the next look.
		d.queue.DoneFor(it, detachLane, 0)
	case next == attach.Idle:
		d.queue.Done(it)
	case next == op && op == attach.Detaching:
		// It is gone, and the watch has not told of it: it may have ended, and be late for as long as a minute.
		d.queue.DoneFor(it, l, d.desired.settings().Retry.Max)
	case next == op: // done, and yet still wanted: somebody undoes it
		d.queue.DoneFor(it, l, d.desired.settings().Retry.Initial)
	default: // deleted while it was being attached
		d.queue.DoneFor(it, l, 0)
	}
}

// fencePause is how long work waits that came to the fence: the next renewal of the
// lease opens it, or the lease is lost.
const fencePause = 100 * time.Millisecond

// errParked says that an item waits for another one and has left its worker.
var errParked = errors.New("parked")

// carryOut decides and does. It returns the operation that it found wanted.
func (d *driver) carryOut(ctx context.Context, it *item, va *storagev1.VolumeAttachment, r *record) (attach.Operation, error) {
	// One object and one decider for all of it: what changes meanwhile is looked at
	// when this has ended.
	decider := d.decider()
	op, _ := d.wantedOf(decider, va)
	if op == attach.Idle {
		return op, nil
	}
	facts, err := readFacts(ctx, d.cluster, va, d.overlay.Volume)
	if err != nil {
		if d.isOfTheVolume(r, err) {
			d.saveError(ctx, va, r, op, err)
		}
		return op, err
	}
	if facts.PersistentVolume == nil && op == attach.Detaching {
		facts.PersistentVolume = d.cluster.DeletedVolume(attach.VolumeName(va))
	}
	facts.Lost = d.ledger.isLost(va)
	r.progress.Adopt(va, facts.PersistentVolume, d.finalizer)
	plan, err := decider.Decide(facts)
	if err == nil && op == attach.Detaching && va.DeletionTimestamp == nil {
		err = d.checkUnused(ctx, va, plan)
	}
	if err != nil {
		d.ledger.setLost(va, false) // it cannot be repaired now; the next listing will tell
		d.saveError(ctx, va, r, op, err)
		return op, err
	}
	if plan.Target.VolumeHandle != "" {
		if err := d.leaveFormerPlace(ctx, it, r, plan); err != nil {
			if !errors.Is(err, errParked) && d.isOfTheVolume(r, err) {
				d.saveError(ctx, va, r, op, err)
			}
			return op, err
		}
		if d.waitsForDetach(ctx, it, va, plan) || !d.takeTurn(it, plan.Target, r.progress.MultiNode(plan)) ||
			!d.queue.TakePlace(it, va.Spec.NodeName) {
			return op, errParked
		}
	}
	if r.tries.failures > 0 && r.tries.operation == op {
		d.tally.metrics.Retry(operationOf(op))
	}
	begin := time.Now()
	switch plan.Operation {
	case attach.Attaching:
		err = d.attacher().Attach(ctx, plan, &r.progress)
		if r.progress.MayBeAttached() && r.progress.Target == plan.Target {
			d.ledger.regained(r, plan.Target)
		}
	case attach.Detaching:
		var others bool
		if others, err = d.leavesToAnother(ctx, r, plan); err != nil {
			break
		}
		if others {
			plan.Unpublish = nil
		}
		d.ledger.setReleased(va.UID, true) // before, so that the deletion's event finds it
		if err = d.attacher().Detach(ctx, plan, &r.progress); err == nil {
			d.ledger.regained(r, plan.Target)
			if others {
				r.progress = attach.Progress{} // it is the other one's to detach
			}
		}
	}
	if plan.Operation != attach.Detaching || err != nil {
		d.ledger.setReleased(va.UID, false)
	}
	if err != nil {
		if d.isOfTheVolume(r, err) {
			d.saveError(ctx, va, r, op, err)
		}
		return op, err
	}
	klog.FromContext(ctx).V(2).Info("Done", "operation", op, "node", va.Spec.NodeName,
		"persistentVolume", attach.VolumeName(va), "took", time.Since(begin))
	return op, nil
}

// waitsForDetach parks an attach of a volume that may be on one node only, while a
// detach of it from another node is in flight or about to start, also one for which
// there is no VolumeAttachment any more. One that backs off holds nobody up: the driver
// decides then.
func (d *driver) waitsForDetach(ctx context.Context, it *item, va *storagev1.VolumeAttachment, plan attach.Plan) bool {
	name := attach.VolumeName(va)
	if plan.Publish == nil || !plan.SingleNode {
		return false
	}
	for _, other := range d.cluster.AttachmentsOfVolume(name) { // none of an inline volume
		if other.Name == va.Name || other.Spec.Attacher != d.name {
			continue
		}
		d.learn(ctx, other)
		if op, _ := d.wanted(other.Name); op == attach.Detaching && d.queue.WaitFor(it, workKey{attachmentWork, other.Name}) {
			return true
		}
	}
	for left := d.ledger.leftElsewhere(va, plan.Target); ; {
		for _, key := range left {
			if d.queue.WaitFor(it, key) {
				return true
			}
		}
		// While this looked, a worker may have found that one has left an orphan.
		now := d.ledger.leftElsewhere(va, plan.Target)
		if slices.Equal(now, left) {
			return false
		}
		left = now
	}
}

// aloneAfter is how often in a row a driver may go away while it is called for one
// volume before that is taken for the volume's own fault: it may be what ends the
// driver, and with it the calls for all others.
const aloneAfter = 3

// troubleAfter is how long the Kubernetes API may be out of order for one VolumeAttachment
// before its status says so: most of that is over in seconds.
const troubleAfter = 5 * time.Second

// isOfTheVolume says whether an error is for the status: whoever waits for the volume can do
// nothing about a short trouble of the Kubernetes API, this process' lease or a driver that
// has just gone.
func (d *driver) isOfTheVolume(r *record, err error) bool {
	lasting := attach.CannotServe(err) && r.tries.failures > 0 && time.Since(r.tries.since) >= troubleAfter
	return (lasting || !attach.NotReady(err)) && !isFenced(err) && !d.waitsOut(r, err)
}

// waitsOut says whether a failure is only that the driver has gone away, so that the
// work waits with the rest of the queue. It counts one time for each session: until the
// queue is shut, work may meet the end of the same one more than once.
func (d *driver) waitsOut(r *record, err error) bool {
	if !isAway(err) {
		r.aways = 0
		return false
	}
	if s := d.connection.session.Load(); s != r.awayFrom {
		r.aways, r.awayFrom = r.aways+1, s
	}
	return r.aways <= aloneAfter
}

// retry ends the run of an item that did not succeed.
func (d *driver) retry(ctx context.Context, it *item, r *record, op attach.Operation, err error) {
	name := it.key.name
	if d.waitsOut(r, err) {
		_, l := d.wanted(name)
		d.queue.DoneFor(it, l, 0)
		return
	}
	if errors.Is(err, attach.ErrStale) {
		d.refresh(ctx, name)
	}
	failures := r.tries.failed(op)
	d.ledger.noteFailure(name, failures, err)
	d.tally.failedWith(err, status.Failure{Time: time.Now(), Operation: operationOf(op), VolumeAttachment: name, Text: csiclient.Shorten(err.Error(), csiclient.MaxWords)}, time.Since(it.since))
	delay := backoff(d.desired.settings().Retry, failures, err, jitter)
	changed := d.queue.Changed(it)
	next, l := d.wanted(name)
	// Deleted meanwhile: the detach does not wait for the attach's backoff. And what was
	// stale has just been read anew.
	if next != op || changed && !d.unchanged(name) || failures == 1 && errors.Is(err, attach.ErrStale) {
		delay = 0
	}
	klog.FromContext(ctx).V(2).Info("Not done, will try again", "volumeAttachment", name, "operation", op,
		"failures", failures, "in", delay, "err", err)
	d.queue.DoneFor(it, l, delay)
}

// refresh reads a VolumeAttachment anew, when a write has shown that the caches are
// behind or that another writer is at work, with its PersistentVolume.
func (d *driver) refresh(ctx context.Context, name string) {
	before := d.overlay.Attachment(name)
	va, err := d.cluster.ReadAttachment(ctx, name)
	if err != nil {
		return
	}
	if before != nil && (va == nil || va.UID != before.UID) {
		// The watch may be late. What was left attached is seen to now, and not once more
		// when the watch tells.
		d.ledger.setReleased(before.UID, d.overlay.MarkDeleted(before))
		d.ledger.vanish(name) // an attach elsewhere waits until that is known
	}
	if va == nil {
		return
	}
	workerWrites{d.overlay, d.ledger}.VolumeAttachmentWritten(va)
	d.refreshVolume(ctx, attach.VolumeName(va))
}

// saveError writes an error into the status. That this fails is no reason to do
// anything but say so: the operation is tried again anyway.
func (d *driver) saveError(ctx context.Context, va *storagev1.VolumeAttachment, r *record, op attach.Operation, cause error) {
	d.events.failed(va, op, cause)
	if since := wantedSince(va, op); !since.IsZero() && time.Since(since) >= d.desired.settings().StuckAfter {
		cause = stuckError{op: op, since: since, tries: r.tries.failures + 1, last: cause}
	}
	if err := d.attacher().SaveError(ctx, va, op, cause); err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot write the error into the VolumeAttachment", "cause", cause, "err", err)
	}
}
