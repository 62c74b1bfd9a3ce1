package view

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache"
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
	Served  func() map[string]func() Driver // what is known of each served driver, by name; nil: not known yet

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

	isServedElsewhere bool // another replica of the hub works for it; set by withLease
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
	d = v.withLease(d)
	d.Fault = d.socketFault()
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

// withLease returns a Driver with its lease.
func (v *View) withLease(d Driver) Driver {
	d.Lease = v.Lease(d.Spec)
	d.Lease.Mine = d.Leads
	isHolder := func(m lease.Member) bool { return m.Identity == d.Lease.Holder }
	d.isServedElsewhere = !d.Leads && v.Leases != nil && slices.ContainsFunc(v.Leases.Members(), isHolder)
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
		l.Holder, l.Since, l.Renewed, l.Renews = holder.Identity, holder.Since, holder.Renewed, holder.Renews
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
			Since: u.Since, Tries: u.Failures, LastError: u.Error, FromList: u.FromList}
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
			Since: n.Since, Waiting: len(n.Line), Line: n.Line[:min(len(n.Line), status.MostInLine)], NextTry: n.NextTry}
		for _, va := range v.Cluster.AttachmentsOnNode(n.Node) {
			if va.Spec.Attacher == d.Name && d.Overlay.Newest(va).Status.Attached {
				node.Attached++
			}
		}
		shown = append(shown, node)
	}
	return shown, waiting
}

// lanes returns the work of each lane. Of the work for which another replica of the hub is responsible it has only what is stuck: that is
// in the headline and the list of each replica, and would be in no row.
func (v *View) lanes(d *Driver, now time.Time) []status.Lane {
	items, complete := d.Table.Queue.All()
	if !complete { // else there may be a hundred thousand VolumeAttachments that need nothing
		clear(items)
		for _, va := range v.Cluster.AttachmentsOfDriver(d.Name) {
			if a := d.look(va); a.op != attach.Idle && (!d.isServedElsewhere || a.isStuck(now)) {
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
		since, one := p.Required, status.Lane{OldestCall: status.Call(p.Call)}
		if va := d.Overlay.Attachment(key.Name); key.Kind == queue.AttachmentKind && va != nil {
			a := d.look(va)
			since = cmp.Or(a.since, since) // a move of the lease does not change the time of the object
			if a.isStuck(now) {
				one.Stuck, one.StuckSince = 1, since
			}
		}
		// A dangling volume counts as dangling only.
		if one.Stuck == 0 && key.Kind != queue.DanglingKind && p.IsFailing() {
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
