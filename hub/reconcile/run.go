package reconcile

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
	"github.com/csi-attach-hub/csi-attach-hub/internal/loglimit"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// Work makes one run of an item. ctx ends when calls in flight must end: at the end of the grace, or when
// the lease is lost.
func (w *Worker) Work(ctx context.Context, e *queue.Item) {
	e.Retries.Session = w.Session()
	switch e.Key.Kind {
	case queue.AttachmentKind:
		w.workOnAttachment(ctx, e)
	case queue.DanglingKind:
		w.workOnDangling(ctx, e)
	case queue.FinalizerKind:
		w.Queue.End(e, w.workOnFinalizer(ctx, e))
	}
}

// workOnAttachment carries out the operation that a VolumeAttachment requires, and decides when its item runs again.
func (w *Worker) workOnAttachment(ctx context.Context, e *queue.Item) {
	old := w.Overlay.Attachment(e.Key.Name)
	if old == nil {
		w.ended(e)
		return
	}
	ctx = klog.NewContext(ctx, w.VolumeLogger(old))
	va, err := w.catchUp(ctx, e, old)
	if err != nil {
		w.Table.Saw(old, false) // else the event of the error, which is written now, ends the backoff
		op, _ := w.required(e.Key.Name)
		w.failed(ctx, e, old, op, err)
		return
	}
	if va == nil {
		w.Queue.End(e, queue.Finished) // the watch will report its deletion
		return
	}
	x := &execution{worker: w, item: e, object: va, attachment: w.Table.Open(va)}
	x.op, _ = w.Table.Required(w.Decider(), va)
	if x.op != attach.Idle && e.Tries > 0 && e.Retries.Operation == x.op {
		w.Metrics.Retry(operationOf(x.op))
	}
	switch err = x.execute(ctx); {
	case errors.Is(err, errBlocked):
	case isFenced(err):
		w.Queue.End(e, queue.RequeueAfter(e.Lane, fencePause))
	case err != nil:
		w.failed(ctx, e, x.object, x.op, err)
	default:
		w.succeeded(e, va, x.op)
	}
}

// succeeded ends the run of an item whose operation has succeeded.
func (w *Worker) succeeded(e *queue.Item, va *storagev1.VolumeAttachment, op attach.Operation) {
	if op != attach.Idle {
		took := time.Since(e.Required)
		w.Metrics.Operation(operationOf(op), status.Success, took)
		endsFailure := e.Retries.Log != (loglimit.Problem{})
		if endsFailure || w.Logger.V(2).Enabled() { // else it logs nothing, and making the logger takes time
			tries := 1
			if e.Retries.Operation == op {
				tries += e.Tries
			}
			w.logSucceeded(w.VolumeLogger(va), op, tries, endsFailure, took)
		}
	}
	w.Queue.Succeeded(e)
	w.Queue.ClearChanged(e) // then changes that came meanwhile are taken into account
	if next, lane := w.required(va.Name); next != attach.Idle {
		w.Queue.End(e, queue.Requeue(lane))
		return
	}
	w.ended(e)
}

// ended ends the run of an item that has nothing more to do, and the volume.Attachment if its VolumeAttachment is gone.
func (w *Worker) ended(e *queue.Item) {
	if w.Overlay.Attachment(e.Key.Name) == nil {
		w.Table.Missing(e.Key.Name, "")
	}
	w.Queue.End(e, queue.Finished)
}

// fencePause is the pause before work is tried again that the fence has refused. By then the lease may be
// renewed, or lost.
const fencePause = 100 * time.Millisecond

// errBlocked means that an item must wait for another item, or for a worker of another lane. Its worker must not use
// it any more.
var errBlocked = errors.New("blocked by other work")

// checkCapability returns an error if the driver was called before and cannot be called now to attach. To mark a volume as attached
// without a call would be wrong then: its Pod would start without the volume. VolumeAttachments are looked through only if one
// that records a call was seen since none was found.
func (w *Worker) checkCapability(decider attach.Driver, op attach.Operation) error {
	seen := w.callsSeen.Load()
	if op != attach.Attaching || decider.Capabilities.PublishUnpublish || w.noCallsAt.Load() == seen {
		return nil
	}
	if decider.RecordedCalls(w.Overlay.AttachmentsOfDriver) > 0 || w.Table.HasPublications() {
		return fmt.Errorf("the driver has no %s, but VolumeAttachments record calls to it: check that the endpoint is that of its controller",
			status.Lacks(decider.Capabilities.Names()))
	}
	w.noCallsAt.Store(seen)
	return nil
}

// waitsForDriver reports whether a run has failed only because the connection ended: the item then waits for the driver, as all other
// items do. For a suspect, the lost connection is a failure of the volume. It counts how often in a row that was so: the connection has
// ended with the call, or before its answer, because the driver answered nothing else for long (silentAfter).
func waitsForDriver(e *queue.Item, err error) bool {
	r := &e.Retries
	s, _ := r.Session.(Session)
	_, called := errors.AsType[*attach.CallError](err)
	switch {
	case !IsDisconnected(err) && !(called && s != nil && s.Ended().Err() != nil):
		r.Disconnects = 0
	case s != r.LastSession:
		r.Disconnects, r.LastSession = r.Disconnects+1, s
	}
	return IsDisconnected(err) && !r.Suspect()
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
func (w *Worker) failed(ctx context.Context, e *queue.Item, va *storagev1.VolumeAttachment, op attach.Operation, err error) {
	name := e.Key.Name
	if waitsForDriver(e, err) {
		_, lane := w.required(name)
		w.Queue.End(e, queue.Requeue(lane))
		return
	}
	if isOfTheVolume(e, err) {
		w.Warn(va, titleOf(op)+failedEvent, err.Error())
		written := err
		if op.IsStuck(va, w.Settings().StuckAfter, time.Now()) {
			written = stuckError(va, op, e.Tries+1, lastError(err))
		}
		w.saveError(ctx, va, op, written)
	}
	if errors.Is(err, attach.ErrStale) {
		w.refreshVolume(ctx, attach.VolumeName(va)) // the next run reads the VolumeAttachment
	}
	cause := causeOf(err)
	failures := w.Queue.Failed(e, op, attach.Message(err), cause) // shorter: there may be very many items
	w.Failed(err, status.Failure{Time: time.Now(), Operation: operationOf(op), VolumeAttachment: name,
		Text: csiclient.Truncate(err.Error(), csiclient.MaxText), Cause: cause}, time.Since(e.Required))
	delay := w.retryIn(e, op, failures, err)
	changed, now := w.Queue.ClearChanged(e), w.Overlay.Attachment(name)
	next, lane := w.required(name)
	// If the object was deleted meanwhile, the detach does not wait for the attach's backoff.
	if next != op || changed && (now == nil || !w.Table.IsUnchanged(now)) {
		delay = 0
	}
	w.logFailed(w.VolumeLogger(va), e, op, failures, cause, delay, err)
	end := queue.BackOff(lane, delay)
	// The driver was not called, so an attach elsewhere must wait for this detach, unless the volume is
	// unpublished already.
	if delay > 0 && attach.NotReady(err) && w.Table.Look(va.Name, va.UID).Belief != volume.Unpublished {
		end = queue.RequeueAfter(lane, delay)
	}
	w.Queue.End(e, end)
}

// backoff returns the delay before the next try after a number of failures in a row (at least 1). It starts at
// retry.Initial, doubles with each failure and is at most retry.Max, or a quarter of that after an error that
// usually passes soon. It is up to a fifth shorter at random, so that operations that failed together are not
// tried again together. The first failure because of a changed object has no delay: the object was read again.
// deploy/CONFIGURE.md has a table of the errors; a test compares it with this function.
func backoff(retry registry.Retry, failures int, err error, random func() float64) time.Duration {
	if failures == 1 && errors.Is(err, attach.ErrStale) {
		return 0
	}
	limit := retry.Max
	if passesSoon(err) {
		limit = max(retry.Max/4, retry.Initial)
	}
	delay := limit
	if shift := failures - 1; shift < 32 && retry.Initial<<shift > 0 {
		delay = min(limit, retry.Initial<<shift)
	}
	return delay - time.Duration(random()*float64(delay)/5)
}

// retryIn returns the delay of the next try of an item after a number of failures in a row, of which err is the last. If the item is a
// suspect, it waits for a random part of that again after the driver could not be reached: other volumes of a driver that takes long to come back must
// have a time in which they can be attached. An attach that a full node has refused has no delay: it waits until the node has a place
// (queue.Queue).
func (w *Worker) retryIn(e *queue.Item, op attach.Operation, failures int, err error) time.Duration {
	if op == attach.Attaching && isNodeFull(err) {
		e.Retries.NodeFull++
		return 0
	}
	delay := backoff(w.Settings().Retry, failures-e.Retries.NodeFull, err, jitter)
	if e.Retries.Suspect() {
		e.Retries.AfterReconnect = time.Duration(jitter() * float64(delay))
	}
	return delay
}

// isNodeFull reports whether the error of a publish says that the node has as many volumes as it can have. By the CSI
// spec, that is ResourceExhausted, and publishes fail until a volume is detached from the node.
func isNodeFull(err error) bool {
	call := (*attach.CallError)(nil)
	return errors.As(err, &call) && grpcstatus.Code(call.Err) == codes.ResourceExhausted
}

// saysNodeFull is isNodeFull for an error in the status of a VolumeAttachment; false for nil.
func saysNodeFull(e *storagev1.VolumeError) bool {
	return e != nil && attach.CauseOfStatus(e).Code == codes.ResourceExhausted.String()
}

// passesSoon reports whether an error usually passes soon: another operation is pending for the volume, the
// driver could not be reached or was slow, or the Kubernetes API was not ready. A full node (ResourceExhausted) can stay full. A lost
// connection is an error only of a suspect, which may end the driver's process each time.
func passesSoon(err error) bool {
	soon := []codes.Code{codes.Aborted, codes.Unavailable, codes.DeadlineExceeded, codes.Canceled}
	return attach.NotReady(err) || !IsDisconnected(err) && slices.Contains(soon, grpcstatus.Code(err))
}

// jitter is the source of randomness of backoff outside tests.
func jitter() float64 { return rand.Float64() }

// saveError writes an error into the status. It only logs a failure to write: the operation is tried again anyway. What the answer shows
// of other changes does not count as seen: their event ends a backoff.
func (w *Worker) saveError(ctx context.Context, va *storagev1.VolumeAttachment, op attach.Operation, cause error) {
	if err := w.Writer().SaveError(ctx, va, op, cause); err != nil {
		w.VolumeLogger(va).V(2).Info("Failed to write the error into the VolumeAttachment", "cause", cause, "err", err)
	}
}

// causeOf returns what an error of an attach or a detach means.
func causeOf(err error) diagnosis.Cause {
	cause, _ := diagnosis.Parse(err.Error(), "")
	return cause
}

// operationOf returns an operation in the terms of metrics and status.
func operationOf(op attach.Operation) status.Operation {
	return status.Operation(strings.ToLower(titleOf(op)))
}

// required returns the operation that a VolumeAttachment requires in its newest known state, Idle if it is gone,
// and the lane of the operation.
func (w *Worker) required(name string) (attach.Operation, queue.Lane) {
	va := w.Overlay.Attachment(name)
	if va == nil {
		return attach.Idle, queue.DetachLane
	}
	return w.Table.Required(w.Decider(), va)
}

// Sleep blocks for d, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}
