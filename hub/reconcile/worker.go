package reconcile

import (
	"context"
	"errors"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// work makes one run of an item. ctx ends when calls in flight have to end: at the end of the grace, or when
// the lease is lost.
func (l *Worker) Work(ctx context.Context, e *queue.Item) {
	e.Retries.Session = l.Session()
	switch e.Key.Kind {
	case queue.ClaimKind:
		l.workOnClaim(ctx, e)
	case queue.UnownedKind:
		l.workOnUnowned(ctx, e)
	case queue.FinalizerKind:
		l.workOnFinalizer(ctx, e)
	}
}

// workOnClaim carries out the operation that a VolumeAttachment requires, and decides when its item runs again.
func (l *Worker) workOnClaim(ctx context.Context, e *queue.Item) {
	old := l.Overlay.Attachment(e.Key.Name)
	if old == nil {
		l.ended(e)
		return
	}
	ctx = klog.NewContext(ctx, l.VolumeLogger(old))
	va, err := l.catchUp(ctx, e, old)
	if err != nil {
		op, _ := l.wanted(e.Key.Name)
		l.failed(ctx, e, old, op, err)
		return
	}
	if va == nil {
		l.Queue.End(e, queue.Finished) // the watch will report its deletion
		return
	}
	op, err := l.carryOut(ctx, e, va)
	switch {
	case errors.Is(err, errBlocked):
	case isFenced(err):
		l.Queue.End(e, queue.Postpone(e.Lane, fencePause))
	case err != nil:
		l.failed(ctx, e, va, op, err)
	default:
		l.succeeded(e, va, op)
	}
}

// succeeded ends the run of an item whose operation has succeeded.
func (l *Worker) succeeded(e *queue.Item, va *storagev1.VolumeAttachment, op attach.Operation) {
	if op != attach.Idle {
		took := time.Since(e.Asked)
		l.Metrics.Operation(operationOf(op), status.Success, took)
		if e.Tries > 0 || l.Logger.V(2).Enabled() { // else it logs nothing, and making the logger takes time
			failures := e.Tries
			if e.Retries.Operation != op {
				failures = 0
			}
			l.logSucceeded(l.VolumeLogger(va), op, failures, e.Tries > 0, took)
		}
	}
	l.Queue.Succeeded(e)
	l.Queue.ClearChanged(e) // what follows takes changes that came meanwhile into account
	if next, lane := l.wanted(va.Name); next != attach.Idle {
		l.Queue.End(e, queue.Again(lane))
		return
	}
	l.ended(e)
}

// ended ends the run of an item that has nothing more to do, and the volume.Attachment if its VolumeAttachment is gone.
func (l *Worker) ended(e *queue.Item) {
	if l.Overlay.Attachment(e.Key.Name) == nil {
		l.Table.Missing(e.Key.Name)
	}
	l.Queue.End(e, queue.Finished)
}

// fencePause is the pause before work is tried again that the fence has refused. By then the lease may be
// renewed, or lost.
const fencePause = 100 * time.Millisecond

// errBlocked means that an item has to wait for another item, or for a worker of another lane. Its worker must not use
// it any more.
var errBlocked = errors.New("blocked by other work")

// carryOut carries out the operation that a VolumeAttachment requires, and returns that operation.
func (l *Worker) carryOut(ctx context.Context, e *queue.Item, va *storagev1.VolumeAttachment) (attach.Operation, error) {
	decider := l.Decider()
	x := &execution{leader: l, item: e, caller: &callerOf{l, e.Key}, object: va, attachment: l.Table.Open(va)}
	// Before the reads: if one fails, an item of which nothing is known would lose its place on a full node.
	if attach.HasFinalizer(va.Finalizers, l.finalizer) {
		x.restore(decider, l.Overlay.Inputs(va))
	}
	op, _ := l.Table.Required(decider, va)
	if op == attach.Idle {
		if decider.HasStaleError(va) {
			return op, l.attacher().ForgetError(ctx, va, attach.Detaching)
		}
		return op, nil
	}
	if e.Tries > 0 && e.Retries.Operation == op {
		l.Metrics.Retry(operationOf(op))
	}
	x.op = op
	err := x.execute(ctx)
	return x.op, err
}

// errLostCapability means that nothing can be attached, because the driver cannot be called any more.
var errLostCapability = errors.New("the driver has no PUBLISH_UNPUBLISH_VOLUME, but VolumeAttachments record calls to it: check that the endpoint is that of its controller")

// checkCapability returns an error if the driver was called before and cannot be called now. To mark a volume as attached
// without a call would be wrong then: its Pod would start without the volume. VolumeAttachments are looked through only if one
// that records a call was seen since none was found.
func (l *Worker) checkCapability(decider attach.Driver) error {
	seen := l.callsSeen.Load()
	if decider.Capabilities.PublishUnpublish || l.noCallsAt.Load() == seen {
		return nil
	}
	if decider.RecordedCalls(func() []*storagev1.VolumeAttachment { return l.Overlay.AttachmentsOfDriver(l.Driver) }) > 0 || l.Table.HasPublications() {
		return errLostCapability
	}
	l.noCallsAt.Store(seen)
	return nil
}

// waitsForDriver reports whether a run has failed only because the connection ended: the item then waits for the driver, as all other
// items do. For a suspect, the lost connection is a failure of the volume. It counts how often in a row that was so: the connection has
// ended with the call, or before its answer, because the driver answered nothing else for long (silentAfter).
func waitsForDriver(e *queue.Item, err error) bool {
	s, _ := e.Retries.Session.(Session)
	_, called := errors.AsType[*attach.CallError](err)
	if IsDisconnected(err) || called && s != nil && s.Ended().Err() != nil {
		e.Retries.Disconnected(s)
	} else {
		e.Retries.Disconnects = 0
	}
	return IsDisconnected(err) && !e.Retries.Suspect()
}

// reportAfter is how long requests to the Kubernetes API may fail for one VolumeAttachment before its
// status shows the error: most such failures end in seconds.
const reportAfter = 5 * time.Second

// isOfTheVolume reports whether an error belongs in the status: a user of the volume can do nothing about a short failure of the
// Kubernetes API.
func isOfTheVolume(e *queue.Item, err error) bool {
	return !attach.NotReady(err) || attach.CannotServe(err) && e.Tries > 0 && time.Since(e.Retries.Since) >= reportAfter
}

// failed ends a run with an error of the volume, of the Kubernetes API or of the connection, and decides when the item runs again.
func (l *Worker) failed(ctx context.Context, e *queue.Item, va *storagev1.VolumeAttachment, op attach.Operation, err error) {
	name := e.Key.Name
	if waitsForDriver(e, err) {
		_, lane := l.wanted(name)
		l.Queue.End(e, queue.Again(lane))
		return
	}
	if isOfTheVolume(e, err) {
		l.Warn(va, titleOf(op)+failedEvent, err.Error())
		written := err
		if op.IsStuck(va, l.Settings().StuckAfter, time.Now()) {
			written = stuckError(va, op, e.Tries+1, lastError(err))
		}
		l.saveError(ctx, l.attacher(), va, op, written)
	}
	if errors.Is(err, attach.ErrStale) {
		l.refresh(ctx, name)
	}
	cause := causeOf(err)
	failures := l.Queue.Failed(e, op, attach.Message(err), cause) // shorter: there may be very many items
	l.Failed(err, status.Failure{Time: time.Now(), Operation: operationOf(op), VolumeAttachment: name,
		Text: csiclient.Truncate(err.Error(), csiclient.MaxText), Cause: cause}, time.Since(e.Asked))
	delay := l.retryIn(e, op, failures, err)
	changed, now := l.Queue.ClearChanged(e), l.Overlay.Attachment(name)
	next, lane := l.wanted(name)
	// If the object was deleted meanwhile, the detach does not wait for the attach's backoff.
	if next != op || changed && (now == nil || !l.Table.IsUnchanged(now)) {
		delay = 0
	}
	l.logFailed(l.VolumeLogger(va), op, failures, delay, err)
	// The driver was not called, so an attach elsewhere has to wait for this detach, unless the volume is
	// unpublished already.
	if delay > 0 && attach.NotReady(err) && l.Table.Look(va.Name, va.UID).Belief != volume.Unpublished {
		l.Queue.End(e, queue.Postpone(lane, delay))
		return
	}
	l.Queue.End(e, queue.BackOff(lane, delay))
}

// refresh reads a VolumeAttachment and its PersistentVolume again, after a write has shown that the caches
// are behind or that another writer is at work.
func (l *Worker) refresh(ctx context.Context, name string) {
	before := l.Overlay.Attachment(name)
	va, err := l.Cluster.ReadAttachment(ctx, name)
	if err != nil {
		return
	}
	if before != nil && (va == nil || va.UID != before.UID) { // the watch may report the deletion later
		l.Table.ReadGone(volume.IdentityOf(before), l.Overlay.MarkDeleted(before))
	}
	if va == nil {
		return
	}
	workerWrites{l.Overlay, l.Table}.VolumeAttachmentWritten(va)
	l.refreshVolume(ctx, attach.VolumeName(va))
}

// saveError writes an error into the status. It only logs a failure to write: the operation is tried again anyway.
func (l *Worker) saveError(ctx context.Context, w attach.Attacher, va *storagev1.VolumeAttachment, op attach.Operation, cause error) {
	if err := w.SaveError(ctx, va, op, cause); err != nil {
		l.VolumeLogger(va).V(2).Info("Failed to write the error into the VolumeAttachment", "cause", cause, "err", err)
	}
}

// causeOf returns what an error of an attach or a detach means.
func causeOf(err error) diagnosis.Cause {
	cause, _ := diagnosis.Parse(err.Error(), "")
	return cause
}

// operationOf returns an operation in the terms of metrics and status.
func operationOf(op attach.Operation) status.Operation { return status.Operation(op.String()) }

// wanted returns the operation that a VolumeAttachment requires in its newest known state, Idle if it is gone,
// and the lane of the operation.
func (l *Worker) wanted(name string) (attach.Operation, queue.Lane) {
	va := l.Overlay.Attachment(name)
	if va == nil {
		return attach.Idle, queue.DetachLane
	}
	return l.Table.Required(l.Decider(), va)
}

// sleep blocks for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}
