package view

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// View answers for all drivers. Its fields must not change while it is used.
type View struct {
	Cluster *cache.Cluster
	Leases  Leases // nil: there are none
	LeaseOf func(registry.Driver) lease.Name
	Rights  RightsFunc                      // nil: nobody can tell
	Served  func() map[string]func() Driver // what is known of each served driver, by name

	answers sync.Map // of answers, by driver
	asking  singleflight.Group
}

// Leases are the leases of all drivers as last seen: *lease.Leases.
type Leases interface {
	// Holder returns the holder of a lease as last seen. It sends no request.
	Holder(lease.Name) (lease.Holder, bool)
	// Members returns the live replicas of the hub.
	Members() []lease.Member
}

// Driver is what its manager knows of a served driver at one moment.
type Driver struct {
	// Driver has Name, State, Reason, Since, Up, DownSince, UnansweredSince, Version, Capabilities, Failures, ConnectionError,
	// ForeignWriter and Observed.
	status.Driver
	Spec    registry.Driver
	Known   bool          // it has been connected
	Decider attach.Driver // with the capabilities of the latest connection
	Leads   bool          // this process works for it

	Table    *volume.Table
	Overlay  *cache.Overlay
	Reported []status.DanglingPublication // dangling volumes that the hub does not detach

	ReadSecret func(context.Context, corev1.SecretReference) (*corev1.Secret, error)

	isServedElsewhere bool // another replica of the hub works for it; set by complete
}

// Drivers implements status.Source: it returns every driver that is served or drains.
func (v *View) Drivers() []status.Driver {
	drivers := []status.Driver{}
	now := time.Now()
	for _, look := range v.Served() {
		drivers = append(drivers, v.complete(look(), now).Driver)
	}
	return drivers
}

// complete returns a Driver with all that the status shows of it.
func (v *View) complete(d Driver, now time.Time) Driver {
	d.Mode, d.Source, d.Endpoint, d.Workers = string(d.Spec.Mode), d.Spec.Source, string(d.Spec.Endpoint), d.Spec.Workers
	d.Settings = status.Settings{Timeout: metav1.Duration{Duration: d.Spec.Timeout}, MaxPerNode: d.Spec.MaxPerNode, StuckAfter: metav1.Duration{Duration: d.Spec.StuckAfter}}
	d.Lease = v.Lease(d.Spec)
	d.Lease.Mine = d.Leads
	isHolder := func(m lease.Member) bool { return m.Identity == d.Lease.Holder }
	d.isServedElsewhere = !d.Leads && v.Leases != nil && slices.ContainsFunc(v.Leases.Members(), isHolder)
	if d.Known {
		d.RecordedCalls = d.Decider.RecordedCalls(v.Cluster.AttachmentsOfDriver)
	}
	d.NoAttach = d.Decider.NoAttach && d.Decider.Capabilities.PublishUnpublish
	if d.Leads || d.Spec.Mode == registry.ModeActive && d.Lease.Holder == "" { // also after the lease was given up
		d.Dangling, d.DanglingCount = d.dangling()
	}
	d.FullNodes, d.WaitingForCapacity = v.fullNodes(d)
	d.Lanes = v.lanes(&d, now)
	d.Busy = d.Work().Running
	if d.Observed != nil {
		d.Checklist = v.checklist(d, now)
	}
	return d
}

// Lease returns the lease of a driver and its holder.
func (v *View) Lease(d registry.Driver) status.Lease {
	if v.Leases == nil {
		return status.Lease{}
	}
	name := v.LeaseOf(d)
	l := status.Lease{Name: name.Name, Namespace: name.Namespace}
	if holder, _ := v.Leases.Holder(name); holder.Expired {
		l.LastHolder, l.Renewed = holder.Identity, holder.Renewed
	} else {
		l.Holder, l.Since, l.Renews = holder.Identity, holder.Since, holder.Renews
	}
	return l
}

// dangling returns the dangling publications, the oldest first and at most status.MostDangling, and how many there are.
// Those that are only reported count too.
func (d Driver) dangling() ([]status.DanglingPublication, int) {
	shown := d.Reported
	for _, u := range d.Table.AllDangling() {
		view := status.DanglingPublication{VolumeHandle: u.Target.VolumeHandle, NodeID: u.Target.NodeID, Node: u.FormerOwner.Node,
			PersistentVolume: u.FormerOwner.PersistentVolume, VolumeAttachment: u.FormerOwner.Name,
			Since: u.Since, Tries: u.Failures, LastError: u.Error, Listed: u.Listed}
		if e, ok := d.Table.Queue.Look(u.Key()); ok && e.State == queue.Delayed {
			view.NextTry = e.Due
		}
		shown = append(shown, view)
	}
	slices.SortStableFunc(shown, func(a, b status.DanglingPublication) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.VolumeHandle, b.VolumeHandle), cmp.Compare(a.NodeID, b.NodeID))
	})
	return shown[:min(len(shown), status.MostDangling)], len(shown)
}

// fullNodes returns the full nodes of a driver, the longest line first and at most status.MostFullNodes, and how
// many attaches wait for a place on any of them.
func (v *View) fullNodes(d Driver) (shown []status.FullNode, waiting int) {
	for _, n := range d.Table.Queue.FullNodes() {
		if waiting += len(n.Line); len(shown) == status.MostFullNodes {
			continue
		}
		node := status.FullNode{Node: n.Node, Limit: attach.Allocatable(v.Cluster.CSINode(n.Node), d.Name),
			Since: n.Since, Waiting: len(n.Line), Line: n.Line[:min(len(n.Line), status.MostWaiters)], NextTry: n.NextTry}
		for _, va := range v.Cluster.AttachmentsOnNode(n.Node) {
			if va.Spec.Attacher == d.Name && d.Overlay.Newest(va).Status.Attached {
				node.Attached++
			}
		}
		shown = append(shown, node)
	}
	return shown, waiting
}

// lanes returns the work of each lane. Work for which another replica of the hub is responsible is left to it: the sum over all
// replicas would count it twice.
func (v *View) lanes(d *Driver, now time.Time) []status.Lane {
	items, complete := d.Table.Queue.All()
	if !complete { // else there may be a hundred thousand VolumeAttachments that need nothing
		clear(items)
		for _, va := range v.Cluster.AttachmentsOfDriver(d.Name) {
			if a := d.look(va); a.op != attach.Idle && !d.isServedElsewhere {
				items[queue.AttachmentKey(a.Name)] = queue.Progress{Lane: a.lane, State: queue.Ready}
			}
		}
	}
	lanes := make([]status.Lane, queue.LaneCount)
	for i := range lanes {
		lanes[i].Operation = status.Operation(queue.Lane(i).String())
		if d.Leads {
			lanes[i].Workers = d.Table.Queue.Workers(queue.Lane(i), now)
		}
	}
	for key, p := range items {
		since, one := p.Asked, status.Lane{OldestCall: status.Call(p.Call)}
		if va := d.Overlay.Attachment(key.Name); key.Kind == queue.AttachmentKind && va != nil {
			a := d.look(va)
			since = cmp.Or(a.since, since) // a move of the lease does not change the time of the object
			if a.op.IsStuck(va, d.Spec.StuckAfter, now) {
				one.Stuck, one.StuckSince = 1, since
			}
		}
		if p.Tries > 0 && p.Wait.Kind != queue.WaitCapacity {
			one.Failing, one.FailingSince = 1, since
		}
		switch p.State {
		case queue.Running:
			one.Running = 1
		case queue.Delayed:
			one.Delayed, one.OldestSince = 1, since
		default:
			one.Queued, one.OldestSince = 1, since
		}
		lanes[p.Lane] = lanes[p.Lane].With(one)
	}
	return lanes
}

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
				d = look()
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
	if f.Oldest > 0 {
		all = slices.DeleteFunc(all, func(a attachment) bool { return a.op == attach.Idle })
		slices.SortFunc(all, func(a, b attachment) int { return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.Name, b.Name)) })
		all = all[:min(f.Oldest, len(all))]
	}
	shown, now := make([]status.Attachment, 0, len(all)), time.Now()
	for _, a := range all {
		shown = append(shown, v.describe(a, now))
	}
	return shown
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
	p, ok := d.Table.Queue.Look(queue.AttachmentKey(a.Name))
	s.Since, s.Tries = cmp.Or(s.Since, p.Asked), p.Tries
	if p.Error != "" {
		if p.Error != s.LastError { // newer than the error in the object
			s.LastErrorTime = time.Time{}
		}
		s.LastError, s.LastCause = p.Error, p.Cause
	}
	switch {
	case ok && p.State == queue.Running:
		s.Call = status.Call(p.Call)
		if s.State = status.Attaching; a.op == attach.Detaching {
			s.State = status.Detaching
		}
	case d.State != status.StateReady || d.Spec.Mode == registry.ModeObserve:
		s.Waiting = status.Wait{Kind: status.WaitForDriver, DriverState: d.State,
			Reason: cmp.Or(d.Reason, "only observed (`mode: observe` in drivers.yaml): another attacher should work for it")}
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
