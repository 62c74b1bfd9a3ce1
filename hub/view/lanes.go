package view

import (
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// dueWork is what VolumeAttachments ask for in one lane, by their objects alone.
type dueWork struct {
	count int
	since time.Time // when the oldest of them was asked for; zero if that is not known
	stuck int       // of them, without success for stuckAfter; the oldest is one of these
}

// countDue counts the VolumeAttachments that require an operation, by lane.
func (d *Driver) countDue(vas []*storagev1.VolumeAttachment, now time.Time) (due [queue.LaneCount]dueWork) {
	for _, va := range vas {
		a := d.look(va)
		if a.op == attach.Idle {
			continue
		}
		w := &due[a.lane]
		if w.count++; !a.since.IsZero() && (w.since.IsZero() || a.since.Before(w.since)) {
			w.since = a.since
		}
		if a.op.IsStuck(a.VolumeAttachment, d.Spec.StuckAfter, now) {
			w.stuck++
		}
	}
	return due
}

// fillLanes fills in the work of each lane. isServedElsewhere says that another replica of the hub works for the driver and
// shows the work that waits for it: the sum over all replicas would count it twice.
func (v *View) fillLanes(d *Driver, isServedElsewhere bool, now time.Time) {
	var views [queue.LaneCount]queue.LaneView
	var vas []*storagev1.VolumeAttachment
	requested, all := d.Table.Queue.Requested()
	all = all && d.Leads
	switch {
	case all: // a driver may have a hundred thousand others that need nothing
		for _, name := range requested {
			if va := d.Overlay.Attachment(name); va != nil {
				vas = append(vas, va)
			}
		}
	case !isServedElsewhere:
		vas = v.Cluster.AttachmentsOfDriver(d.Name)
	}
	if d.Leads {
		views = d.Table.Queue.Lanes(now)
	}
	due := d.countDue(vas, now)
	for i, view := range views {
		lane, w := queue.Lane(i), due[i]
		l := status.Lane{Operation: status.Operation(lane.String()), Queued: view.Queued, Delayed: view.Delayed,
			Failing: view.Failing, FailingSince: view.FailingSince,
			Running: view.Running, Workers: view.Workers, OldestSince: view.OldestSince, OldestCall: status.Call(view.OldestCall)}
		if !all {
			l.Queued, l.OldestSince = w.count, w.since
		}
		// The times of the objects count, not those of the table: a move of the lease does not change them.
		if !w.since.IsZero() && view.Queued+view.Delayed > 0 && w.since.Before(l.OldestSince) {
			l.OldestSince = w.since
		}
		if !w.since.IsZero() && view.Failing >= w.count {
			l.FailingSince = w.since
		}
		if l.Stuck = w.stuck; w.stuck > 0 {
			l.StuckSince = w.since
		}
		d.Lanes = append(d.Lanes, l)
		if lane != queue.FinalizerLane {
			d.Busy += view.Running
		}
	}
}
