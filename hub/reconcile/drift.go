package reconcile

import (
	"context"
	"fmt"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/drift"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// drifts connects a drift.Watch with the leader: it is its Queue and Actions.
type drifts struct{ l *Worker }

func (l *Worker) newDrift() *drift.Watch {
	of := drifts{l}
	return &drift.Watch{Driver: l.Decider, Settings: func() registry.Drift { return l.Settings().Drift }, Session: of.session,
		Cluster: l.Cluster, Nodes: &l.nodes, View: l.Overlay, KnowsAll: l.knowsAll, Queue: of, Actions: of, Logger: l.Logger}
}

func (d drifts) session() drift.Session {
	s := d.l.Session()
	if s == nil || s.HasEnded() || !s.Info().Capabilities.ListPublishedNodes {
		return nil
	}
	return s
}

// Listing implements drift.Queue.
func (d drifts) Listing() (changed func(attach.Target) bool, end func()) { return d.l.Table.Listing() }

// Has implements drift.Queue.
func (d drifts) Has(attachment string) bool { return d.l.Queue.Has(queue.ClaimKey(attachment)) }

// Listed implements drift.Queue. It ends the unowned publications that a listing does not show any more, and those that the hub must
// only report by now.
func (d drifts) Listed(has func(attach.Target) (listed, there bool), began time.Time) {
	for _, u := range d.l.Table.Listed(has, began, d.l.Settings().Timeout) {
		message := "ListVolumes does not report the volume of a deleted VolumeAttachment on this node, not detaching it"
		if u.Listed {
			message = "ListVolumes no longer reports the volume on this node, not detaching it"
		}
		d.l.log.line(d.l.UnownedLogger(u), true, message)
	}
	if d.l.Settings().Drift.Unexpected != registry.UnexpectedDetach {
		d.l.Table.DropFound() // the next listings report them
	}
}

// Missing implements drift.Actions: it reports the volume, and has it attached again if drift.action says so.
func (d drifts) Missing(va *storagev1.VolumeAttachment, isNew bool) {
	l, action := d.l, d.l.Settings().Drift.Action
	if isNew {
		l.Metrics.Drift("missing", string(action))
		end := "attaching it again"
		if action != registry.DriftReattach {
			end = "not attaching it again because drift.action is " + string(action)
		}
		l.Warn(va, driftDetected, "ListVolumes no longer reports the volume on this node; "+end)
		l.log.line(l.VolumeLogger(va), true, "ListVolumes no longer reports the volume on this node", "kind", "missing", "action", action)
	}
	if key := queue.ClaimKey(va.Name); action == registry.DriftReattach && !l.Queue.Has(key) {
		l.Table.Open(va)
		l.Table.SetLost(va, true)
		l.Queue.Add(key, queue.DriftLane, l.PlaceOf(va, attach.Attaching))
	}
}

// Present implements drift.Actions: it ends the repair of a lost volume, because another client or the storage system itself has
// attached it again, or else removes an attachError that the listing disproves.
func (d drifts) Present(ctx context.Context, va *storagev1.VolumeAttachment) {
	l, key := d.l, queue.ClaimKey(va.Name)
	switch {
	case l.Table.IsLost(va):
		if p, _ := l.Queue.Look(key); p.State == queue.Running && p.Lane != queue.DetachLane {
			return // its publish may be in flight: the status needs the new publish context
		}
		if l.Table.SetLost(va, false); !l.Table.IsLost(va) {
			l.log.line(l.VolumeLogger(va), true, "ListVolumes reports the volume on this node again, not attaching it again")
			l.Queue.RetryNow(key)
		}
	case va.Status.AttachError != nil && !l.Queue.Has(key):
		if err := l.Writer().ForgetError(ctx, va, attach.Attaching); err != nil {
			l.VolumeLogger(va).V(2).Info("Failed to remove the attachError of a volume that ListVolumes reports as attached", "err", err)
		}
	}
}

// Dangling implements drift.Actions: it reports the volume, and asks for its detach if nothing keeps it.
func (d drifts) Dangling(found *drift.Dangling, kept string) {
	l, record, action, end := d.l, found.Record(), registry.UnexpectedDetach, "detaching it there"
	if kept != "" {
		action, end = registry.UnexpectedReport, "not detaching it there because "+kept
	}
	id := volume.Identity{Node: found.Nodes[0], PersistentVolume: found.Volumes[0].Name}
	l.Metrics.Drift("unexpected", string(action))
	l.Warn(found.Volumes[0].Object(), driftDetected, fmt.Sprintf("the driver reports volume %q on node %q (node ID %q), where no VolumeAttachment asks for it; %s",
		record.Target.VolumeHandle, id.Node, record.Target.NodeID, end))
	l.log.line(l.UnownedLogger(volume.Unowned{Publication: volume.Publication{Record: record}, FormerOwner: id}), true,
		"The driver reports the volume on a node where no VolumeAttachment asks for it", "kind", "unexpected", "action", action, "kept", kept)
	if kept == "" {
		l.Table.Found(id, record)
	}
}

// ReportedDrift returns the dangling volumes that are not detached, for the status.
func (l *Worker) ReportedDrift() []status.UnownedPublication {
	var views []status.UnownedPublication
	for _, r := range l.drift.Reported() {
		at := r.Record().Target
		views = append(views, status.UnownedPublication{VolumeHandle: at.VolumeHandle, NodeID: at.NodeID, Node: r.Nodes[0],
			PersistentVolume: r.Volumes[0].Name, Since: r.Since, LastError: r.Kept, Listed: true, ReportOnly: true})
	}
	return views
}

// CheckDrift compares the driver's list with what is attached.
func (l *Worker) CheckDrift(ctx context.Context) { l.drift.Check(ctx) }

// DriftPause returns the time until the next CheckDrift.
func (l *Worker) DriftPause(interval time.Duration) time.Duration { return l.drift.Pause(interval) }
