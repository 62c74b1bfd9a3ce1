package view

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
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
	Served  func() map[string]func() Driver // what is known of each served driver, by name

	answers sync.Map // of *answers, by driver
}

// Leases are the leases of all drivers as last seen: *lease.Leases.
type Leases interface {
	Holder(lease.Name) (lease.Holder, bool)
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
	Reported []status.UnownedPublication // dangling volumes that the hub does not detach

	ReadSecret func(context.Context, corev1.SecretReference) (*corev1.Secret, error)
}

// Drivers implements status.Source: it returns every driver that is served or drains.
func (v *View) Drivers() []status.Driver {
	drivers := []status.Driver{}
	now, replicas := time.Now(), v.replicas()
	for _, look := range v.Served() {
		drivers = append(drivers, v.complete(look(), replicas, now).Driver)
	}
	return drivers
}

// replicas returns the identities of the live replicas of the hub.
func (v *View) replicas() map[string]bool {
	live := map[string]bool{}
	if v.Leases != nil {
		for _, m := range v.Leases.Members() {
			live[m.Identity] = true
		}
	}
	return live
}

// complete returns a Driver with all that the status shows of it. replicas has the live replicas of the hub.
func (v *View) complete(d Driver, replicas map[string]bool, now time.Time) Driver {
	d.Mode, d.Source, d.Endpoint, d.Workers = string(d.Spec.Mode), d.Spec.Source, string(d.Spec.Endpoint), d.Spec.Workers
	d.Settings = status.Settings{Timeout: metav1.Duration{Duration: d.Spec.Timeout}, MaxPerNode: d.Spec.MaxPerNode, StuckAfter: metav1.Duration{Duration: d.Spec.StuckAfter}}
	d.Lease = v.Lease(d.Spec)
	d.Lease.Mine = d.Leads
	if d.Known {
		d.RecordedCalls = d.Decider.RecordedCalls(func() []*storagev1.VolumeAttachment { return v.Cluster.AttachmentsOfDriver(d.Name) })
	}
	d.NoAttach = d.Decider.NoAttach && d.Decider.Capabilities.PublishUnpublish
	if d.Leads || d.Spec.Mode == registry.ModeActive && d.Lease.Holder == "" { // also after the lease was given up
		d.Unowned, d.UnownedCount = d.unowned()
	}
	if d.Leads {
		d.FullNodes, d.WaitingForCapacity = v.fullNodes(d)
	}
	d.Lanes = v.lanes(&d, !d.Leads && replicas[d.Lease.Holder], now)
	for _, l := range d.Lanes[:queue.FinalizerLane] { // which calls nothing
		d.Busy += l.Running
	}
	if d.Observed != nil {
		d.Checklist = v.checklist(d, replicas, now)
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
	switch holder, ok := v.Leases.Holder(name); {
	case !ok:
	case holder.Expired:
		l.LastHolder, l.Renewed = holder.Identity, holder.Renewed
	default:
		l.Holder, l.Since, l.Renews = holder.Identity, holder.Since, holder.Renews
	}
	return l
}

// unowned returns the unowned publications, the oldest first and at most status.MostUnowned, and how many there are.
// Those that are only reported count too.
func (d Driver) unowned() ([]status.UnownedPublication, int) {
	shown := d.Reported
	for _, u := range d.Table.UnownedAll() {
		view := status.UnownedPublication{
			VolumeHandle:     u.Target.VolumeHandle,
			NodeID:           u.Target.NodeID,
			Node:             u.FormerOwner.Node,
			PersistentVolume: u.FormerOwner.PersistentVolume,
			VolumeAttachment: u.FormerOwner.Name,
			Since:            u.Since,
			Tries:            u.Failures,
			LastError:        u.Error,
			Listed:           u.Listed,
		}
		if e, ok := d.Table.Queue.Look(u.Key()); ok && e.State == queue.Delayed {
			view.NextTry = e.Due
		}
		shown = append(shown, view)
	}
	slices.SortStableFunc(shown, func(a, b status.UnownedPublication) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.VolumeHandle, b.VolumeHandle), cmp.Compare(a.NodeID, b.NodeID))
	})
	return shown[:min(len(shown), status.MostUnowned)], len(shown)
}

// fullNodes returns the full nodes of a driver, the longest line first and at most status.MostFullNodes, and how
// many attaches wait for a place on any of them.
func (v *View) fullNodes(d Driver) (shown []status.FullNode, waiting int) {
	for _, n := range d.Table.Queue.FullNodes() {
		waiting += len(n.Line)
		if len(shown) < status.MostFullNodes {
			shown = append(shown, status.FullNode{Node: n.Node, Limit: attach.Allocatable(v.Cluster.CSINode(n.Node), d.Name),
				Attached: v.attachedOn(n.Node, d), Since: n.Since, Waiting: len(n.Line), Line: n.Line[:min(len(n.Line), status.MostWaiters)], NextTry: n.NextTry})
		}
	}
	return shown, waiting
}

// attachedOn returns how many VolumeAttachments of a driver are attached to a node.
func (v *View) attachedOn(node string, d Driver) (attached int) {
	for _, va := range v.Cluster.AttachmentsOnNode(node) {
		if va.Spec.Attacher == d.Name && d.Overlay.Newest(va).Status.Attached {
			attached++
		}
	}
	return attached
}

// lanes returns the work of each lane. isServedElsewhere says that another replica of the hub works for the driver and shows the
// work that waits for it: the sum over all replicas would count it twice.
func (v *View) lanes(d *Driver, isServedElsewhere bool, now time.Time) []status.Lane {
	items, complete := d.Table.Queue.All()
	if !complete || !d.Leads { // else there may be a hundred thousand VolumeAttachments that need nothing
		clear(items)
		for _, va := range v.Cluster.AttachmentsOfDriver(d.Name) {
			if a := d.look(va); a.op != attach.Idle && !isServedElsewhere {
				items[queue.ClaimKey(a.Name)] = queue.Progress{Lane: a.lane, State: queue.Ready}
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
		if va := d.Overlay.Attachment(key.Name); key.Kind == queue.ClaimKind && va != nil {
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
