package hub

import (
	"cmp"
	"context"
	"errors"
	"time"

	grpcstatus "google.golang.org/grpc/status"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/hub/tracing"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// record notes that a worker has the entry of a VolumeAttachment, and what the entry has waited for. The returned context
// has the operation, to which the worker adds steps.
func (l *leader) record(ctx context.Context, e *volume.Entry, va *storagev1.VolumeAttachment) (context.Context, *operation) {
	due, waits := l.table.TakeWaits(e)
	op, lane := l.wantedOf(l.decider(), va)
	if op == attach.Idle {
		return ctx, nil
	}
	kind := operationOf(op)
	if lane == volume.DriftLane {
		kind = status.Drift
	}
	o, _ := e.Kept().(*operation)
	if o == nil || o.uid != va.UID || o.kind != kind {
		o.end(0, notRequired)
		o = l.newOperation(e, va, op, kind)
		l.table.Keep(e, o)
	}
	o.runs(due, l.waitSteps(waits, l.get(), va.Spec.NodeName))
	return context.WithValue(ctx, operationKey{}, o), o
}

// newOperation returns the operation of an entry that runs for the first time.
func (l *leader) newOperation(e *volume.Entry, va *storagev1.VolumeAttachment, op attach.Operation, kind status.Operation) *operation {
	o := &operation{memory: l.hub.steps, name: va.Name, uid: va.UID, kind: kind}
	asked := firstAskedFor(va, op)
	if l.hub.options.Tracer != nil {
		o.span = l.hub.options.Tracer.Start(tracing.Operation{
			Name: string(kind), UID: string(va.UID), VolumeAttachment: va.Name, PersistentVolume: attach.VolumeName(va),
			VolumeHandle: l.placeOf(va, op).Target.VolumeHandle, Node: va.Spec.NodeName, Driver: l.name, Began: cmp.Or(asked, e.Since()),
		})
	}
	for _, s := range l.beginning(kind, asked, e.Since()) {
		if s.Kind == status.StepWaited {
			o.waited(s.What, s.Time, s.Until)
		} else {
			o.at(s.Kind, s.What, s.Time)
		}
	}
	return o
}

// runs notes that a worker has the operation, and what it waited for.
func (o *operation) runs(due time.Time, waits []status.Step) {
	o.memory.mu.Lock()
	idle := o.idle
	o.idle = time.Time{}
	o.memory.mu.Unlock()
	if !idle.IsZero() {
		o.waited(waitForNextTry, idle, due)
	}
	for _, w := range waits {
		o.waited(w.What, w.Time, w.Until)
	}
}

// rests notes that a run has ended without success. After errBlocked another worker may have the operation already.
func (o *operation) rests(err error) {
	if o == nil || err == nil || errors.Is(err, errBlocked) {
		return
	}
	o.memory.mu.Lock()
	defer o.memory.mu.Unlock()
	o.idle = time.Now()
}

// notRequired is the error of the span of an operation that is over without success: its object is gone, or another
// process has done it.
const notRequired = "not required any more"

// end ends the span of an operation after a number of runs, with the text of an error or "", and gives up its memory.
func (o *operation) end(tries int, failure string) {
	if o != nil {
		o.span.End(time.Now(), tries, failure)
		o.memory.release(o)
	}
}

// Drop implements volume.Kept. At the end of a term the span goes on: the next leader ends it.
func (o *operation) Drop(done bool) {
	if done {
		o.end(0, notRequired)
	} else {
		o.memory.release(o)
	}
}

// recordSuccess ends the operation of an entry after a run without an error. done is what the run has done: Idle if
// another process had done it. failures is the number of runs before that have failed.
func (l *leader) recordSuccess(e *volume.Entry, o *operation, done attach.Operation, failures int) {
	if o == nil {
		return
	}
	l.table.Keep(e, nil)
	if done == attach.Idle {
		o.end(failures, notRequired)
		return
	}
	now := time.Now()
	if o.kind == status.Detach {
		o.end(failures+1, "") // its object is gone
		return
	}
	o.at(status.StepDone, "", now)
	o.span.End(now, failures+1, "")
	o.span = nil
	o.memory.release(l.recent.add(o))
}

// recordUnowned is record for an unowned publication. Only traces show its steps, in the trace of its former owner. e is
// nil for a detach without an entry.
func (l *leader) recordUnowned(ctx context.Context, e *volume.Entry, u volume.Unowned) context.Context {
	if l.hub.options.Tracer == nil || u.FormerOwner.UID == "" {
		return ctx
	}
	var o *operation
	if e != nil {
		o, _ = e.Kept().(*operation)
	}
	if o == nil {
		o = &operation{memory: l.hub.steps, name: u.FormerOwner.Name, uid: u.FormerOwner.UID, kind: status.Detach}
		o.span = l.hub.options.Tracer.Start(tracing.Operation{
			Name: string(status.Detach), UID: string(u.FormerOwner.UID), VolumeAttachment: u.FormerOwner.Name, PersistentVolume: u.FormerOwner.PersistentVolume,
			VolumeHandle: u.Target.VolumeHandle, Node: u.FormerOwner.Node, Driver: l.name, Began: u.Since,
		})
	}
	if e != nil {
		due, waits := l.table.TakeWaits(e)
		o.runs(due, l.waitSteps(waits, l.get(), u.FormerOwner.Node))
		l.table.Keep(e, o)
	}
	return context.WithValue(ctx, operationKey{}, o)
}

// recordUnownedEnd ends the operation of recordUnowned. failure is its error, "" for success.
func (l *leader) recordUnownedEnd(ctx context.Context, e *volume.Entry, tries int, failure string) {
	if o := operationIn(ctx); o != nil {
		if e != nil {
			l.table.Keep(e, nil)
		}
		o.end(tries, failure)
	}
}

// step is do, as a step of the operation. A CSI call is a step of its own.
func (x *execution) step(ctx context.Context, effect volume.Effect) (outcome volume.Outcome, err error) {
	kind, what := stepOf(effect.Kind)
	if kind == "" {
		return x.do(ctx, effect)
	}
	o := operationIn(ctx)
	o.starts(kind, what, time.Now())
	outcome, err = x.do(ctx, effect)
	o.done(err)
	return outcome, err
}

// stepOf returns what an effect reads or writes, "" if it does neither.
func stepOf(kind volume.EffectKind) (step status.StepKind, what string) {
	switch kind {
	case volume.FindOwners, volume.LookAgain:
		return status.StepRead, "the VolumeAttachments that may have the volume at the node ID"
	case volume.ReadSecret:
		return status.StepRead, "the Secret"
	case volume.AddFinalizers:
		return status.StepWrote, "finalizers and notes"
	case volume.MarkAttached, volume.MarkDetached:
		return status.StepWrote, "the status"
	case volume.Release:
		return status.StepWrote, "the removal of the finalizer"
	}
	return "", ""
}

// callStep is the step of a CSI call in flight.
type callStep struct {
	operation *operation
	span      tracing.Call
}

// calls begins the step of a CSI call. The returned context has the trace for the driver.
func (o *operation) calls(ctx context.Context, method string, now time.Time) (context.Context, callStep) {
	if o == nil {
		return ctx, callStep{}
	}
	o.starts(status.StepCalled, method, now)
	ctx, span := o.span.Call(ctx, method, now)
	return ctx, callStep{o, span}
}

// answered ends the step of a call. The redactor knows the secrets of the call.
func (s callStep) answered(redactor *attach.Redactor, err error) {
	if s.operation == nil {
		return
	}
	failure, now := "", time.Now()
	if err != nil {
		failure = stepError(redactor.Error(err))
	}
	s.operation.ended(failure, now)
	s.span.End(now, grpcstatus.Code(err), failure)
}
