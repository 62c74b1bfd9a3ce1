package hub

import (
	"cmp"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// Attachments implements status.Source: it returns the VolumeAttachments that a filter matches.
func (h *Hub) Attachments(f status.AttachmentFilter) []status.Attachment {
	vas := h.attachmentsFor(f)
	if f.Oldest > 0 {
		vas = h.longestDue(vas, f.Oldest)
	}
	attachments := make([]status.Attachment, 0, len(vas))
	now := time.Now()
	for _, va := range vas {
		if a := h.attachmentView(va, now); f.Match(a) {
			attachments = append(attachments, a)
		}
	}
	return attachments
}

// attachmentsFor returns the VolumeAttachments that a filter may match, and as few others as the
// indexes allow.
func (h *Hub) attachmentsFor(f status.AttachmentFilter) []*storagev1.VolumeAttachment {
	switch {
	case f.Name != "":
		if va := h.cluster.Attachment(f.Name); va != nil {
			return []*storagev1.VolumeAttachment{va}
		}
		return nil
	case f.Driver != "":
		return h.cluster.AttachmentsOfDriver(f.Driver)
	case f.Node != "":
		return h.cluster.AttachmentsOnNode(f.Node)
	}
	return h.cluster.AllAttachments()
}

// Unclaimed counts the VolumeAttachments of drivers that are not served, by attacher,
// without those that need no driver.
func (h *Hub) Unclaimed() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	unclaimed := map[string]int{}
	for attacher, n := range h.cluster.CountByDriver() {
		if h.managers[attacher] != nil {
			continue
		}
		if !h.cluster.AttachRequired(attacher) {
			n = len(slices.DeleteFunc(h.cluster.AttachmentsOfDriver(attacher), func(va *storagev1.VolumeAttachment) bool { return !mayBeAttached(va) }))
		}
		if n > 0 {
			unclaimed[attacher] = n
		}
	}
	return unclaimed
}

// UnclaimedSince returns the drivers that are not served here, by attacher, for which a VolumeAttachment waits: since
// when the longest-waiting one shows no sign of any attacher. A csi-attacher that serves the driver makes the time
// move on with each attach, detach and error that it writes; nobody does for a driver that nobody serves.
func (h *Hub) UnclaimedSince() map[string]time.Time {
	since := map[string]time.Time{}
	for attacher := range h.Unclaimed() {
		decider := attach.Driver{Name: attacher, NoAttach: !h.cluster.AttachRequired(attacher)}
		for _, va := range h.cluster.AttachmentsOfDriver(attacher) {
			t := untouchedSince(va, decider.RequiredOperation(va))
			if oldest, ok := since[attacher]; !t.IsZero() && (!ok || t.Before(oldest)) {
				since[attacher] = t
			}
		}
	}
	return since
}

// untouchedSince returns when an operation was asked for, or when an attacher last wrote an error of it if that was
// later. It is zero if no operation is due.
func untouchedSince(va *storagev1.VolumeAttachment, op attach.Operation) time.Time {
	since, lastError := wantedSince(va, op), errorOf(va, op)
	if !since.IsZero() && lastError != nil && lastError.Time.After(since) {
		return lastError.Time.Time
	}
	return since
}

// attachmentView returns what the status shows of one VolumeAttachment.
func (h *Hub) attachmentView(va *storagev1.VolumeAttachment, now time.Time) status.Attachment {
	h.mu.Lock()
	m := h.managers[va.Spec.Attacher]
	h.mu.Unlock()
	a := status.Attachment{
		Name:             va.Name,
		Driver:           va.Spec.Attacher,
		Node:             va.Spec.NodeName,
		PersistentVolume: attach.VolumeName(va),
		VolumeHandle:     va.Annotations[attach.AnnotationVolumeHandle],
	}
	if v := h.cluster.VolumeOrDeleted(a.PersistentVolume); v != nil {
		a.VolumeHandle, a.Claim = cmp.Or(a.VolumeHandle, v.Handle), v.Claim
	}
	if m != nil {
		if s := m.get(); s.leader != nil {
			s.leader.describe(&a, s, va, now)
			return a
		}
	}
	op, isNeeded := h.requiredByObject(va), m != nil || h.cluster.AttachRequired(a.Driver) || mayBeAttached(va)
	if !isNeeded {
		op = attach.Idle
	}
	describeObject(&a, op, va)
	switch {
	case m != nil && op != attach.Idle:
		s := m.get()
		a.Waiting = s.wait()
		if isStuck(wantedSince(va, op), s.spec.StuckAfter, now) {
			a.State = status.Stuck
		}
	case m == nil && isNeeded:
		if a.State = status.Unclaimed; op != attach.Idle {
			a.Waiting = status.Wait{Kind: status.WaitForConfiguration}
		}
	}
	return a
}

// requiredByObject returns the operation that follows from the objects alone: this process does not work for the driver.
func (h *Hub) requiredByObject(va *storagev1.VolumeAttachment) attach.Operation {
	return attach.Driver{Name: va.Spec.Attacher, NoAttach: !h.cluster.AttachRequired(va.Spec.Attacher)}.RequiredOperation(va)
}

// describeObject fills in the part of a view that follows from the object alone.
func describeObject(a *status.Attachment, op attach.Operation, va *storagev1.VolumeAttachment) {
	a.Since = wantedSince(va, op)
	switch {
	case op != attach.Idle:
		a.State, a.Operation = status.Waiting, operationOf(op)
	case va.Status.Attached:
		a.State = status.Attached
	default:
		a.State = status.Idle
	}
	if e := errorOf(va, op); e != nil && diagnosis.IsError(e.Message) {
		a.LastError, a.LastErrorTime, a.LastCause = e.Message, e.Time.Time, causeOfStatus(e)
	}
}

// errorOf returns the error of an operation in the status, nil if there is none.
func errorOf(va *storagev1.VolumeAttachment, op attach.Operation) *storagev1.VolumeError {
	switch op {
	case attach.Attaching:
		return va.Status.AttachError
	case attach.Detaching:
		return va.Status.DetachError
	}
	return nil
}

// causeOfStatus returns what an error in the status of a VolumeAttachment means.
func causeOfStatus(e *storagev1.VolumeError) diagnosis.Cause {
	code := ""
	if e.ErrorCode != nil {
		code = codes.Code(*e.ErrorCode).String()
	}
	cause, _ := diagnosis.Parse(e.Message, code)
	return cause
}

// causeOf returns what an error of an attach or a detach means.
func causeOf(err error) diagnosis.Cause {
	if isDisconnected(err) {
		return diagnosis.Cause{Verdict: diagnosis.CannotConnect}
	}
	return attach.CauseOf(err)
}

// describe fills in the state of the leader's work for a VolumeAttachment.
func (l *leader) describe(a *status.Attachment, s driverState, va *storagev1.VolumeAttachment, now time.Time) {
	va = l.overlay.Newest(va)
	op, lane := l.wantedOf(l.decider(), va)
	describeObject(a, op, va)
	if op == attach.Idle {
		return
	}
	if lane == queue.DriftLane {
		a.Operation = status.Drift
	}
	e, ok := l.queue.Look(queue.ClaimKey(va.Name))
	if a.Tries = e.Tries; e.Error != "" {
		if e.Error != a.LastError { // newer than the error in the object
			a.LastErrorTime = time.Time{}
		}
		a.LastError, a.LastCause = e.Error, e.Cause
	}
	if a.Since.IsZero() && ok {
		a.Since = e.Asked
	}
	switch running := ok && e.State == queue.Running; {
	case running:
		a.Call = status.Call(e.Call)
		if a.State = status.Attaching; op == attach.Detaching {
			a.State = status.Detaching
		}
	case s.State != Ready:
		a.Waiting = s.wait()
	case ok && e.State == queue.Delayed:
		a.State, a.NextTry = status.Failing, e.Due
	case ok:
		a.Waiting = l.waitOf(e.Wait, va.Spec.NodeName)
	}
	if isStuck(wantedSince(va, op), s.spec.StuckAfter, now) {
		a.State = status.Stuck
	}
}

// wait returns why this process does no work for the driver, zero if it does.
func (s driverState) wait() status.Wait {
	reason := s.Reason
	if s.State == Ready {
		if s.role.mode != registry.ModeObserve {
			return status.Wait{}
		}
		reason = "only observed (`mode: observe` in drivers.yaml): another attacher should work for it"
	}
	return status.Wait{Kind: status.WaitForDriver, DriverState: string(s.State), Reason: reason}
}

// waitOf returns the wait of an item for a node in the terms of the status.
func (l *leader) waitOf(w queue.Wait, node string) status.Wait {
	switch w.Kind {
	case queue.WaitDetach:
		if w.Detach.Kind == queue.UnownedKind {
			return status.Wait{Kind: status.WaitForUnowned, NodeID: w.Detach.Target.NodeID}
		}
		wait := status.Wait{Kind: status.WaitForDetach, VolumeAttachment: w.Detach.Name, Node: w.Node}
		if other := l.cluster.Attachment(w.Detach.Name); other != nil {
			wait.Node = other.Spec.NodeName
		}
		return wait
	case queue.WaitVolume:
		return status.Wait{Kind: status.WaitForVolume}
	case queue.WaitNode:
		return status.Wait{Kind: status.WaitForNode}
	case queue.WaitCapacity:
		return status.Wait{Kind: status.WaitForCapacity, Node: node, Limit: attach.Allocatable(l.cluster.CSINode(node), l.name), Position: w.Position}
	case queue.WaitNothing:
		return status.Wait{}
	}
	return status.Wait{Kind: status.WaitForWorker}
}

// operationOf returns an operation in the terms of metrics and status.
func operationOf(op attach.Operation) status.Operation {
	if op == attach.Detaching {
		return status.Detach
	}
	return status.Attach
}
