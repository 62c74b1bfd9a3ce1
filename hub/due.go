package hub

import (
	"cmp"
	"maps"
	"slices"
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
func countDue(decider attach.Driver, vas []*storagev1.VolumeAttachment, stuckAfter time.Duration, now time.Time) map[status.Operation]dueWork {
	due := map[status.Operation]dueWork{}
	for _, va := range vas {
		op := decider.RequiredOperation(va)
		if op == attach.Idle {
			continue
		}
		w := due[operationOf(op)]
		since := wantedSince(va, op)
		if w.count++; !since.IsZero() && (w.since.IsZero() || since.Before(w.since)) {
			w.since = since
		}
		if isStuck(since, stuckAfter, now) {
			w.stuck++
		}
		due[operationOf(op)] = w
	}
	return due
}

// longestDue returns at most n VolumeAttachments: those whose operation is due for the longest, by their objects alone.
func (h *Hub) longestDue(vas []*storagev1.VolumeAttachment, n int) []*storagev1.VolumeAttachment {
	since := map[*storagev1.VolumeAttachment]time.Time{}
	for _, va := range vas {
		if op := h.requiredByObject(va); op != attach.Idle {
			since[va] = wantedSince(va, op)
		}
	}
	due := slices.SortedFunc(maps.Keys(since), func(a, b *storagev1.VolumeAttachment) int {
		return cmp.Or(since[a].Compare(since[b]), cmp.Compare(a.Name, b.Name))
	})
	return due[:min(n, len(due))]
}

// isStuck reports whether an operation that was asked for at a time, zero if that is not known, counts as stuck.
func isStuck(since time.Time, stuckAfter time.Duration, now time.Time) bool {
	return !since.IsZero() && now.Sub(since) >= stuckAfter
}

// due counts the VolumeAttachments that wait for the driver or are worked on. If those with these names are all of them it
// looks at no others: a driver may have a hundred thousand that need nothing.
func (m *manager) due(s driverState, requested []string, all bool, now time.Time) map[status.Operation]dueWork {
	if s.leader == nil { // nothing repairs what a client has broken, so the capabilities do not matter
		decider := attach.Driver{Name: m.name, NoAttach: !m.cluster.AttachRequired(m.name)}
		return countDue(decider, m.cluster.AttachmentsOfDriver(m.name), s.spec.StuckAfter, now)
	}
	var vas []*storagev1.VolumeAttachment
	if all {
		for _, name := range requested {
			if va := m.overlay.Attachment(name); va != nil {
				vas = append(vas, va)
			}
		}
	} else {
		vas = m.overlay.AttachmentsOfDriver(m.name)
	}
	return countDue(m.decider(), vas, s.spec.StuckAfter, now)
}

// fillLanes fills in the work of each lane. isServedElsewhere says that another replica of the hub works for the driver and
// shows the work that waits for it: the sum over all replicas would count it twice.
func (m *manager) fillLanes(v *status.Driver, s driverState, isServedElsewhere bool, now time.Time) {
	var views [queue.LaneCount]queue.LaneView
	if s.leader != nil {
		views = m.queue.Lanes(now)
		v.UnansweredSince = s.session.unansweredSince(m.queue.Has)
	}
	requested, inTable := m.queue.Requested()
	inTable = inTable && s.leader != nil
	var due map[status.Operation]dueWork
	if !isServedElsewhere {
		due = m.due(s, requested, inTable, now)
	}
	for i, view := range views {
		lane := queue.Lane(i)
		shown := status.Lane{Operation: status.Operation(lane.String()), Queued: view.Queued, Delayed: view.Delayed,
			Failing: view.Failing, FailingSince: view.FailingSince,
			Running: view.Running, Workers: view.Workers, OldestSince: view.OldestSince, OldestCall: status.Call(view.OldestCall)}
		w := due[shown.Operation]
		if !inTable {
			shown.Queued, shown.OldestSince = w.count, w.since
		}
		// The times of the objects count, not those of the table: a move of the lease does not change them.
		if !w.since.IsZero() && view.Queued+view.Delayed > 0 && w.since.Before(shown.OldestSince) {
			shown.OldestSince = w.since
		}
		if !w.since.IsZero() && view.Failing >= w.count {
			shown.FailingSince = w.since
		}
		if shown.Stuck = w.stuck; w.stuck > 0 {
			shown.StuckSince = w.since
		}
		v.Lanes = append(v.Lanes, shown)
		if lane != queue.FinalizerLane {
			v.Busy += view.Running
		}
	}
}
