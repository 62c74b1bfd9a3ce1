package view

import (
	"cmp"
	"slices"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
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
	since  time.Time  // when op was asked for, see attach.Operation.Since
}

// look returns a VolumeAttachment with what it requires.
func (d *Driver) look(va *storagev1.VolumeAttachment) attachment {
	var op attach.Operation
	var lane queue.Lane
	if d.Leads {
		va = d.Overlay.Newest(va)
		op, lane = d.Table.Required(d.Decider, va)
	} else { // nothing repairs what a client has broken, so the capabilities do not matter
		op = attach.Driver{Name: d.Decider.Name, NoAttach: d.Decider.NoAttach}.RequiredOperation(va)
		lane = queue.LaneOf(op)
	}
	return attachment{va, d, op, lane, op.Since(va)}
}

// isServed reports whether this process serves the driver, in any mode.
func (d *Driver) isServed() bool { return d.Table != nil }

// driversByName returns a function that returns what is known of a driver. It asks for each driver once.
func (v *View) driversByName() func(string) *Driver {
	served, known := v.Served(), map[string]*Driver{}
	return func(name string) *Driver {
		if known[name] == nil {
			d := Driver{Decider: attach.Driver{Name: name, NoAttach: !v.Cluster.AttachRequired(name)}}
			if look := served[name]; look != nil {
				d = look()
			}
			known[name] = &d
		}
		return known[name]
	}
}

// Attachments implements status.Source: it returns the VolumeAttachments that a filter matches.
func (v *View) Attachments(f status.AttachmentFilter) []status.Attachment {
	driverOf := v.driversByName()
	var all []attachment
	for _, va := range v.attachmentsFor(f) {
		all = append(all, driverOf(va.Spec.Attacher).look(va))
	}
	if f.Oldest > 0 {
		all = slices.DeleteFunc(all, func(a attachment) bool { return a.op == attach.Idle })
		slices.SortFunc(all, func(a, b attachment) int { return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.Name, b.Name)) })
		all = all[:min(f.Oldest, len(all))]
	}
	shown, now := make([]status.Attachment, 0, len(all)), time.Now()
	for _, a := range all {
		if s := v.describe(a, now); f.Match(s) {
			shown = append(shown, s)
		}
	}
	return shown
}

// attachmentsFor returns the VolumeAttachments that a filter may match, and as few others as the
// indexes allow.
func (v *View) attachmentsFor(f status.AttachmentFilter) []*storagev1.VolumeAttachment {
	switch {
	case f.Name != "":
		return slices.DeleteFunc([]*storagev1.VolumeAttachment{v.Cluster.Attachment(f.Name)}, func(va *storagev1.VolumeAttachment) bool { return va == nil })
	case f.Driver != "":
		return v.Cluster.AttachmentsOfDriver(f.Driver)
	case f.Node != "":
		return v.Cluster.AttachmentsOnNode(f.Node)
	}
	return v.Cluster.AllAttachments()
}

// needsDriver reports whether the driver of a VolumeAttachment has to be served.
func (a attachment) needsDriver() bool {
	return !a.driver.Decider.NoAttach || attach.MayBeAttached(a.VolumeAttachment)
}

// Unserved returns the VolumeAttachments of drivers that are not served here, by attacher: their number, without those that
// need no driver, and since when the longest-waiting one shows no sign of any attacher. A csi-attacher that serves the driver
// makes the time move on with each attach, detach and error that it writes; nobody does for a driver that nobody serves.
func (v *View) Unserved() (counts map[string]int, since map[string]time.Time) {
	counts, since = map[string]int{}, map[string]time.Time{}
	served, driverOf := v.Served(), v.driversByName()
	for _, va := range v.Cluster.AllAttachments() {
		attacher := va.Spec.Attacher
		if served[attacher] != nil {
			continue
		}
		a := driverOf(attacher).look(va)
		if a.needsDriver() {
			counts[attacher]++
		}
		t := a.untouchedSince()
		if oldest, ok := since[attacher]; !t.IsZero() && (!ok || t.Before(oldest)) {
			since[attacher] = t
		}
	}
	return counts, since
}

// untouchedSince returns when the operation was asked for, or when an attacher last wrote an error of it if that was
// later. It is zero if no operation is due.
func (a attachment) untouchedSince() time.Time {
	if e := a.op.LastError(a.VolumeAttachment); !a.since.IsZero() && e != nil && e.Time.After(a.since) {
		return e.Time.Time
	}
	return a.since
}

// describe returns what the status shows of a VolumeAttachment.
func (v *View) describe(a attachment, now time.Time) status.Attachment {
	d, s := a.driver, status.Attachment{
		Name:             a.Name,
		Driver:           a.Spec.Attacher,
		Node:             a.Spec.NodeName,
		PersistentVolume: attach.VolumeName(a.VolumeAttachment),
		VolumeHandle:     a.Annotations[attach.AnnotationVolumeHandle],
		Since:            a.since,
	}
	if volume := v.Cluster.VolumeOrDeleted(s.PersistentVolume); volume != nil {
		s.VolumeHandle, s.Claim = cmp.Or(s.VolumeHandle, volume.Handle), volume.Claim
	}
	if e := a.op.LastError(a.VolumeAttachment); e != nil && diagnosis.IsError(e.Message) {
		s.LastError, s.LastErrorTime, s.LastCause = e.Message, e.Time.Time, attach.CauseOfStatus(e)
	}
	s.State = status.Idle
	switch {
	case !d.isServed() && a.needsDriver():
		s.State = status.Unclaimed
	case a.op != attach.Idle:
		s.State = status.Waiting
	case a.Status.Attached:
		s.State = status.Attached
	}
	if a.op == attach.Idle {
		return s
	}
	s.Operation = status.Operation(a.lane.String())
	if !d.isServed() {
		s.Waiting.Kind = status.WaitForConfiguration
		return s
	}
	p, ok := d.Table.Queue.Look(queue.ClaimKey(a.Name))
	s.Since, s.Tries = cmp.Or(s.Since, p.Asked), p.Tries
	if p.Error != "" {
		if p.Error != s.LastError { // newer than the error in the object
			s.LastErrorTime = time.Time{}
		}
		s.LastError, s.LastCause = p.Error, p.Cause
	}
	switch wait := d.wait(); {
	case ok && p.State == queue.Running:
		s.Call = status.Call(p.Call)
		if s.State = status.Attaching; a.op == attach.Detaching {
			s.State = status.Detaching
		}
	case wait.Kind != "":
		s.Waiting = wait
	case ok && p.State == queue.Delayed:
		s.State, s.NextTry = status.Failing, p.Due
	case ok:
		if s.Waiting = WaitOf(p.Wait, s.Node); s.Waiting.Kind == status.WaitForCapacity {
			s.Waiting.Limit = attach.Allocatable(v.Cluster.CSINode(s.Node), s.Driver)
		}
	}
	if a.op.IsStuck(a.VolumeAttachment, d.Spec.StuckAfter, now) {
		s.State = status.Stuck
	}
	return s
}

// wait returns why this process does no work for the driver, zero if it does.
func (d *Driver) wait() status.Wait {
	reason := d.Reason
	if d.State == "Ready" {
		if d.Spec.Mode != registry.ModeObserve {
			return status.Wait{}
		}
		reason = "only observed (`mode: observe` in drivers.yaml): another attacher should work for it"
	}
	return status.Wait{Kind: status.WaitForDriver, DriverState: d.State, Reason: reason}
}

var waitKinds = map[queue.WaitKind]status.WaitKind{queue.WaitWorker: status.WaitForWorker, queue.WaitVolume: status.WaitForVolume,
	queue.WaitDetach: status.WaitForDetach, queue.WaitNode: status.WaitForNode, queue.WaitCapacity: status.WaitForCapacity}

// WaitOf returns the wait of an item for a node in the terms of the status.
func WaitOf(w queue.Wait, node string) status.Wait {
	s := status.Wait{Kind: waitKinds[w.Kind], Position: w.Position, Node: w.Node, VolumeAttachment: w.Detach.Name}
	switch {
	case w.Kind == queue.WaitCapacity:
		s.Node = node
	case w.Detach.Kind == queue.UnownedKind:
		s = status.Wait{Kind: status.WaitForUnowned, NodeID: w.Detach.Target.NodeID}
	}
	return s
}
