package hub

import (
	"context"
	"errors"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
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
		o.release()
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

// release gives up the memory of the operation.
func (o *operation) release() {
	if o != nil {
		o.memory.release(o)
	}
}

// Drop implements volume.Kept.
func (o *operation) Drop() { o.release() }

// recordSuccess ends the operation of an entry after a run without an error. done is what the run has done: Idle if
// another process had done it.
func (l *leader) recordSuccess(e *volume.Entry, o *operation, done attach.Operation) {
	if o == nil {
		return
	}
	l.table.Keep(e, nil)
	if done == attach.Idle || o.kind == status.Detach { // then its object is gone
		o.release()
		return
	}
	o.at(status.StepDone, "", time.Now())
	o.memory.release(l.recent.add(o))
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

// calls begins the step of a CSI call.
func (o *operation) calls(method string, now time.Time) { o.starts(status.StepCalled, method, now) }

// answered ends the step of a CSI call.
func (o *operation) answered(secrets map[string]string, err error) {
	if o == nil {
		return
	}
	failure := ""
	if err != nil {
		failure = stepError(attach.Redact(err, secrets))
	}
	o.ended(failure, time.Now())
}
