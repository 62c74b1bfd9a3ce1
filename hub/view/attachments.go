package view

import (
	"cmp"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// attachment is a VolumeAttachment with what it requires.
type attachment struct {
	*storagev1.VolumeAttachment
	driver *Driver
	op     attach.Operation
	lane   queue.Lane // of op
	since  time.Time  // when op was required, see attach.Operation.Since
}

// look returns a VolumeAttachment with what it requires.
func (d *Driver) look(va *storagev1.VolumeAttachment) attachment {
	if !d.Leads { // nothing repairs what a client has broken, so the capabilities do not matter
		op := attach.Driver{Name: d.Decider.Name, NoAttach: d.Decider.NoAttach}.RequiredOperation(va)
		return attachment{va, d, op, queue.LaneOf(op), op.Since(va)}
	}
	va = d.Overlay.Newest(va)
	op, lane := d.Table.Required(d.Decider, va)
	return attachment{va, d, op, lane, op.Since(va)}
}

// isServed reports whether this process serves the driver, in any mode.
func (d *Driver) isServed() bool { return d.Table != nil }

// driversByName returns a function that returns what is known of a driver. It asks for each driver once.
func (v *View) driversByName() func(string) *Driver {
	served, known := v.Served(), map[string]*Driver{}
	return func(name string) *Driver {
		if known[name] == nil {
			d := Driver{Decider: attach.Driver{Name: name, NoAttach: !cache.AttachRequired(v.Cluster.CSIDriver(name))}}
			if look := served[name]; look != nil {
				d = v.withLease(look())
			}
			known[name] = &d
		}
		return known[name]
	}
}

// Attachments implements status.Source: it returns the VolumeAttachments that a filter matches, in any state.
func (v *View) Attachments(f status.AttachmentFilter) []status.Attachment {
	var vas []*storagev1.VolumeAttachment
	switch {
	case f.Name != "":
		if va := v.Cluster.Attachment(f.Name); va != nil {
			vas = append(vas, va)
		}
	case f.Node != "":
		vas = v.Cluster.AttachmentsOnNode(f.Node)
	case f.Driver != "":
		vas = v.Cluster.AttachmentsOfDriver(f.Driver)
	default:
		vas = v.Cluster.AllAttachments()
	}
	var all []attachment
	driverOf := v.driversByName()
	for _, va := range vas {
		if (f.Node == "" || f.Node == va.Spec.NodeName) && (f.Driver == "" || f.Driver == va.Spec.Attacher) {
			all = append(all, driverOf(va.Spec.Attacher).look(va))
		}
	}
	shown, now := make([]status.Attachment, 0, len(all)), time.Now()
	for _, a := range all {
		shown = append(shown, v.describe(a, now))
	}
	return shown
}

// isStuck reports whether the operation has had no success for stuckAfter. What a user has paused is not stuck.
func (a attachment) isStuck(now time.Time) bool {
	return a.driver.Spec.Mode != registry.ModePaused && a.op.IsStuck(a.VolumeAttachment, a.driver.Spec.StuckAfter, now)
}

// needsDriver reports whether the driver of a VolumeAttachment must be served.
func (a attachment) needsDriver() bool {
	return !a.driver.Decider.NoAttach || attach.MayBeAttached(a.VolumeAttachment)
}

// Unserved returns the VolumeAttachments of drivers that are not served here, by attacher: their number, without those that
// need no driver, and since when the longest-waiting one shows no sign of any attacher. A csi-attacher that serves the driver
// makes the time move on with each attach, detach and error that it writes; nobody does for a driver that nobody serves.
func (v *View) Unserved() (counts map[string]int, since map[string]time.Time) {
	counts, since = map[string]int{}, map[string]time.Time{}
	if v.Served() == nil {
		return counts, since
	}
	driverOf := v.driversByName()
	for _, va := range v.Cluster.AllAttachments() {
		attacher := va.Spec.Attacher
		d := driverOf(attacher)
		if d.isServed() {
			continue
		}
		a := d.look(va)
		if a.needsDriver() {
			counts[attacher]++
		}
		if e := a.op.LastError(va); !a.since.IsZero() && e != nil && e.Time.After(a.since) {
			a.since = e.Time.Time
		}
		if oldest, ok := since[attacher]; !a.since.IsZero() && (!ok || a.since.Before(oldest)) {
			since[attacher] = a.since
		}
	}
	return counts, since
}

// describe returns what the status shows of a VolumeAttachment.
func (v *View) describe(a attachment, now time.Time) status.Attachment {
	d, s := a.driver, status.Attachment{Name: a.Name, Driver: a.Spec.Attacher, Node: a.Spec.NodeName, State: status.Idle, Since: a.since,
		PersistentVolume: attach.VolumeName(a.VolumeAttachment), VolumeHandle: a.Annotations[attach.AnnotationVolumeHandle]}
	if volume := v.Cluster.VolumeOrDeleted(s.PersistentVolume); volume != nil {
		s.VolumeHandle, s.Claim = cmp.Or(s.VolumeHandle, volume.Handle), volume.Claim
	}
	if e := a.op.LastError(a.VolumeAttachment); e != nil && diagnosis.IsError(e.Message) {
		s.LastError, s.LastErrorTime, s.LastCause = e.Message, e.Time.Time, attach.CauseOfStatus(e)
	}
	switch {
	case !d.isServed() && a.needsDriver():
		s.State = status.Unserved
	case a.op != attach.Idle:
		s.State = status.Waiting
	case a.Status.Attached:
		s.State, s.Fault = status.Attached, v.attachedFault(a, s)
	}
	if a.op == attach.Idle {
		return a.heldByOthers(s)
	}
	s.Operation = status.Operation(a.lane.String())
	if !d.isServed() {
		s.Waiting.Kind = status.WaitForConfiguration
		return s
	}
	p, ok := d.Table.Queue.Look(queue.AttachmentKey(a.Name))
	s.Since, s.Tries = cmp.Or(s.Since, p.Required), p.Tries
	if p.Error != "" {
		if p.Error != s.LastError { // newer than the error in the object
			s.LastErrorTime = time.Time{}
		}
		s.LastError, s.LastCause = p.Error, p.Cause
	}
	failing := p.IsFailing()
	switch {
	case ok && p.State == queue.Running:
		s.Call = status.Call(p.Call)
		if s.State = status.Attaching; a.op == attach.Detaching {
			s.State = status.Detaching
		}
	case d.isServedElsewhere:
		s.Waiting = status.Wait{Kind: status.WaitForDriver, DriverState: status.StateReady, Reason: "served by " + d.Lease.Holder}
		failing = s.LastError != ""
	case d.State != status.StateReady || d.Spec.Mode == registry.ModeObserve:
		state := d.State
		if d.Spec.Mode == registry.ModePaused { // also when it cannot be called: nobody is to call it
			state, failing = status.StatePaused, false
		}
		s.Waiting = status.Wait{Kind: status.WaitForDriver, DriverState: state,
			Reason: cmp.Or(d.Reason, "only observed (`mode: observe` in drivers.yaml): another attacher should work for it")}
	case ok && p.State == queue.Delayed:
		s.NextTry = p.Due
	case ok:
		if s.Waiting = WaitOf(p.Wait, s.Node); s.Waiting.Kind == status.WaitForCapacity {
			s.Waiting.Limit = attach.Allocatable(v.Cluster.CSINode(s.Node), s.Driver)
		}
	}
	switch {
	case a.isStuck(now):
		s.State = status.Stuck
	case failing:
		s.State = status.Failing
	}
	return s
}

var waitKinds = map[queue.WaitKind]status.WaitKind{queue.WaitWorker: status.WaitForWorker, queue.WaitVolume: status.WaitForVolume,
	queue.WaitDetach: status.WaitForDetach, queue.WaitNode: status.WaitForNode, queue.WaitCapacity: status.WaitForCapacity}

// WaitOf returns the wait of an item for a node in the terms of the status.
func WaitOf(w queue.Wait, node string) status.Wait {
	s := status.Wait{Kind: waitKinds[w.Kind], Position: w.Position, Node: w.Node, VolumeAttachment: w.Detach.Name}
	switch {
	case w.Kind == queue.WaitCapacity:
		s.Node = node
	case w.Detach.Kind == queue.DanglingKind:
		s = status.Wait{Kind: status.WaitForDanglingDetach, NodeID: w.Detach.Target.NodeID}
	}
	return s
}
