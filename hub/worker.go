package hub

import (
	"context"
	"errors"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// work runs one entry to its end. The context ends when calls in flight have to: at the end of the
// grace when the driver drains.
func (d *driver) work(ctx context.Context, e *volume.Entry) {
	switch e.Key.Kind {
	case volume.ClaimKind:
		d.workOnClaim(ctx, e)
	case volume.UnownedKind:
		d.workOnUnowned(ctx, e)
	case volume.FinalizerKind:
		d.workOnFinalizer(ctx, e)
	}
	d.windDown.driver(d.name) // this may have been the last that was left of the driver
}

// workOnClaim does what one VolumeAttachment needs and decides when to look at it again.
func (d *driver) workOnClaim(ctx context.Context, e *volume.Entry) {
	name := e.Key.Name
	va := d.overlay.Attachment(name)
	if va == nil {
		d.table.Missing(name)
		d.table.Done(e)
		return
	}
	c := d.table.Open(va)
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("volumeAttachment", name))
	old := va
	va, err := d.catchUp(ctx, e, old)
	if err != nil {
		op, _ := d.wanted(name)
		d.saveError(ctx, old, e, op, err)
		d.retry(ctx, e, c, op, err)
		return
	}
	if va == nil {
		d.table.Done(e) // the watch will tell of its end
		return
	}
	op, err := d.carryOut(ctx, e, va, c)
	switch {
	case errors.Is(err, errBlocked):
	case isFenced(err):
		d.table.Postpone(e, e.Lane(), fencePause)
	case err != nil:
		d.retry(ctx, e, c, op, err)
	default:
		d.succeeded(e, va, op)
	}
}

// succeeded ends the run of an entry that has done what was wanted.
func (d *driver) succeeded(e *volume.Entry, va *storagev1.VolumeAttachment, op attach.Operation) {
	if op != attach.Idle {
		d.tally.succeeded(operationOf(op), time.Since(e.Since()))
	}
	e.Retries = volume.Retries{}
	d.table.NoteFailure(e, 0, "")
	d.table.SetLost(va, false)
	d.table.Changed(e) // what came meanwhile is looked at here
	switch next, l := d.wanted(va.Name); {
	case next == attach.Idle:
		if d.overlay.Attachment(va.Name) == nil {
			d.table.Missing(va.Name)
		}
		d.table.Done(e)
	case next == op && op == attach.Detaching:
		// The object is gone, and the cache still has it: a watch that has ended may be a minute late.
		d.table.DoneFor(e, l, d.desired.settings().Retry.Max)
	case next == op: // done, and yet still wanted: somebody undoes it
		d.table.DoneFor(e, l, d.desired.settings().Retry.Initial)
	default: // deleted while it was being attached
		d.table.DoneFor(e, l, 0)
	}
}

// fencePause is how long work waits that came to the fence: the next renewal of the
// lease opens it, or the lease is lost.
const fencePause = 100 * time.Millisecond

// errBlocked says that an entry waits for another one and has left its worker.
var errBlocked = errors.New("blocked by other work")

// carryOut decides and does. It returns the operation that it found wanted.
func (d *driver) carryOut(ctx context.Context, e *volume.Entry, va *storagev1.VolumeAttachment, c *volume.Claim) (attach.Operation, error) {
	// One object and one decider for all of it: what changes meanwhile is looked at
	// when this has ended.
	decider := d.decider()
	op, _ := d.wantedOf(decider, va)
	if op == attach.Idle {
		return op, nil
	}
	plan, err := d.plan(ctx, decider, op, va, c)
	if err != nil {
		d.saveError(ctx, va, e, op, err)
		return op, err
	}
	if e.Retries.Failures > 0 && e.Retries.Operation == op {
		d.tally.metrics.Retry(operationOf(op))
	}
	begin := time.Now()
	if err := d.execute(ctx, e, va, c, plan); err != nil {
		if !errors.Is(err, errBlocked) {
			d.saveError(ctx, va, e, op, err)
		}
		return op, err
	}
	klog.FromContext(ctx).V(2).Info("Done", "operation", op, "node", va.Spec.NodeName,
		"persistentVolume", attach.VolumeName(va), "took", time.Since(begin))
	return op, nil
}

// plan reads the objects and says what a VolumeAttachment needs.
func (d *driver) plan(ctx context.Context, decider attach.Driver, op attach.Operation, va *storagev1.VolumeAttachment, c *volume.Claim) (attach.Plan, error) {
	facts, err := readFacts(ctx, d.cluster, va, d.overlay.Volume)
	if err != nil {
		return attach.Plan{}, err
	}
	if facts.PersistentVolume == nil && op == attach.Detaching {
		facts.PersistentVolume = d.cluster.DeletedVolume(attach.VolumeName(va))
	}
	facts.Lost = d.table.IsLost(va)
	if record, ok := decider.Recorded(facts); ok {
		d.table.Restore(c, record)
	}
	plan, err := decider.Decide(facts)
	if err == nil && op == attach.Detaching && va.DeletionTimestamp == nil {
		err = d.checkUnused(ctx, va, plan)
	}
	if err != nil {
		d.table.SetLost(va, false) // it cannot be repaired now; the next listing will tell
	}
	return plan, err
}

// aloneAfter is how often in a row a driver may go away while it is called for one
// volume before that is taken for the volume's own fault: it may be what ends the
// driver, and with it the calls for all others.
const aloneAfter = 3

// troubleAfter is how long the Kubernetes API may be out of order for one VolumeAttachment
// before its status says so: most of that is over in seconds.
const troubleAfter = 5 * time.Second

// isOfTheVolume reports whether an error is for the status: whoever waits for the volume can do
// nothing about a short trouble of the Kubernetes API, this process' lease or a driver that
// has just gone.
func (d *driver) isOfTheVolume(e *volume.Entry, err error) bool {
	lasting := attach.CannotServe(err) && e.Retries.Failures > 0 && time.Since(e.Retries.Since) >= troubleAfter
	return (lasting || !attach.NotReady(err)) && !isFenced(err) && !d.waitsOut(e, err)
}

// waitsOut reports whether a failure is only that the driver has gone away, so that the work waits
// with all the other work.
func (d *driver) waitsOut(e *volume.Entry, err error) bool {
	if !isAway(err) {
		e.Retries.Aways = 0
		return false
	}
	return e.Retries.Away(d.connection.session.Load()) <= aloneAfter
}

// retry ends the run of an entry that did not succeed.
func (d *driver) retry(ctx context.Context, e *volume.Entry, c *volume.Claim, op attach.Operation, err error) {
	name := e.Key.Name
	if d.waitsOut(e, err) {
		_, l := d.wanted(name)
		d.table.DoneFor(e, l, 0)
		return
	}
	if errors.Is(err, attach.ErrStale) {
		d.refresh(ctx, name)
	}
	now, text := time.Now(), csiclient.Truncate(err.Error(), csiclient.MaxText)
	failures := e.Retries.Failed(op, now)
	d.table.NoteFailure(e, failures, text)
	d.tally.failedWith(err, status.Failure{Time: now, Operation: operationOf(op), VolumeAttachment: name, Text: text}, time.Since(e.Since()))
	delay := backoff(d.desired.settings().Retry, failures, err, jitter)
	changed := d.table.Changed(e)
	next, l := d.wanted(name)
	// Deleted meanwhile: the detach does not wait for the attach's backoff. And what was
	// stale has just been read anew.
	if next != op || changed && !d.isUnchanged(name) || failures == 1 && errors.Is(err, attach.ErrStale) {
		delay = 0
	}
	klog.FromContext(ctx).V(2).Info("Not done, will try again", "operation", op,
		"failures", failures, "in", delay, "err", err)
	// The driver was not asked: an attach elsewhere waits until it is. If the volume is unpublished
	// already, nothing is left to wait for.
	if delay > 0 && attach.NotReady(err) && d.table.Believed(c).Belief != volume.Unpublished {
		d.table.Postpone(e, l, delay)
		return
	}
	d.table.DoneFor(e, l, delay)
}

// refresh reads a VolumeAttachment anew, when a write has shown that the caches are
// behind or that another writer is at work, with its PersistentVolume.
func (d *driver) refresh(ctx context.Context, name string) {
	before := d.overlay.Attachment(name)
	va, err := d.cluster.ReadAttachment(ctx, name)
	if err != nil {
		return
	}
	if before != nil && (va == nil || va.UID != before.UID) { // the watch may be late
		d.table.ReadGone(volume.IdentityOf(before), d.overlay.MarkDeleted(before))
	}
	if va == nil {
		return
	}
	workerWrites{d.overlay, d.table}.VolumeAttachmentWritten(va)
	d.refreshVolume(ctx, attach.VolumeName(va))
}

// saveError writes an error into the status, if it is for it. That this fails is no reason to do
// anything but say so: the operation is tried again anyway.
func (d *driver) saveError(ctx context.Context, va *storagev1.VolumeAttachment, e *volume.Entry, op attach.Operation, cause error) {
	if !d.isOfTheVolume(e, cause) {
		return
	}
	d.events.failed(va, op, cause)
	if since := wantedSince(va, op); !since.IsZero() && time.Since(since) >= d.desired.settings().StuckAfter {
		cause = stuckError{op: op, since: since, tries: e.Retries.Failures + 1, last: cause}
	}
	if err := d.attacher().SaveError(ctx, va, op, cause); err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot write the error into the VolumeAttachment", "cause", cause, "err", err)
	}
}
