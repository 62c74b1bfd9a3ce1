package volume

import (
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// LaneView is one lane at one moment.
type LaneView struct {
	Queued, Delayed, Running int
	Held                     int       // of Queued, entries whose node is full
	Failing                  int       // of these, entries whose last run has failed; those that are held do not count
	FailingSince             time.Time // when the oldest of these was asked for; zero if there is none
	OldestSince              time.Time // when the oldest entry that does not run was asked for; zero if there is none
	Workers                  int       // most that it may have now, with those that the other lane lends it
}

// Lanes returns a view of each lane.
func (t *Table) Lanes(now time.Time) [LaneCount]LaneView {
	t.mu.Lock()
	defer t.mu.Unlock()
	var views [LaneCount]LaneView
	for _, e := range t.entries {
		l := &views[e.lane]
		held := e.state == Ready && e.wait.Kind == WaitCapacity
		if held {
			l.Held++
		}
		if e.failures > 0 && !held {
			l.Failing++
			if l.FailingSince.IsZero() || e.since.Before(l.FailingSince) {
				l.FailingSince = e.since
			}
		}
		switch e.state {
		case Running:
			l.Running++
			continue
		case Delayed:
			l.Delayed++
		default:
			l.Queued++
		}
		if l.OldestSince.IsZero() || e.since.Before(l.OldestSince) {
			l.OldestSince = e.since
		}
	}
	views[AttachLane].Workers = max(0, t.lanes.most(AttachLane, now))
	views[DetachLane].Workers = max(0, t.lanes.most(DetachLane, now))
	views[DriftLane].Workers = max(1, t.lanes.workers/4)
	views[FinalizerLane].Workers = finalizerWorkers
	return views
}

// EntryView is one entry at one moment.
type EntryView struct {
	Lane     Lane
	State    State
	Since    time.Time       // when it was asked for
	Due      time.Time       // only if it is Delayed
	Wait     Wait            // only if it is Blocked or Ready; WaitNothing if it starts in a moment
	Failures int             // in a row
	Error    string          // the last of them
	Cause    diagnosis.Cause // of Error
}

// Look returns a view of the entry of a key, and whether there is one.
func (t *Table) Look(key Key) (EntryView, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[key]
	if e == nil {
		return EntryView{}, false
	}
	v := EntryView{Lane: e.lane, State: e.state, Since: e.since, Wait: e.wait, Failures: e.failures, Error: e.failure, Cause: e.cause}
	if e.state == Delayed {
		v.Due = e.due
	}
	if n := t.full[e.place.Node]; n != nil && v.Wait.Kind == WaitCapacity {
		v.Wait.Position = n.position(e)
	}
	if e.state == Ready && e.wait.Kind == WaitWorker && t.lanes.hasWorker(e.lane, time.Now()) {
		v.Wait.Kind = WaitNothing
	}
	return v, true
}

// Knows reports whether the entries are all the work that the objects ask for. They are not before the driver could
// be called for the first time in a term, and after the term.
func (t *Table) Knows() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.entries != nil && (t.lanes.open || t.lanes.shut)
}

// Requested returns the names of the VolumeAttachments that have an entry, in any order.
func (t *Table) Requested() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	names := make([]string, 0, len(t.entries))
	for key := range t.entries {
		if key.Kind == ClaimKind {
			names = append(names, key.Name)
		}
	}
	return names
}

// Has reports whether there is an entry of a key, in whatever state.
func (t *Table) Has(key Key) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.entries[key] != nil
}

// IsCalling reports whether an entry runs that may call the driver.
func (t *Table) IsCalling() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lanes.inFlight() > 0
}

// IsWedged reports whether an entry could start, and Run has not looked for WedgedAfter.
func (t *Table) IsWedged(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended { // entries that still run may take as long as the shutdown grace
		return false
	}
	due := len(t.delayed) > 0 && now.Sub(t.delayed[0].due) > WedgedAfter
	return !t.looked.IsZero() && now.Sub(t.looked) > WedgedAfter && (due || t.lanes.pick(now) != nil)
}

// OwesDetach reports whether this process has to detach an unowned publication, or may have to when a
// worker has ended.
func (t *Table) OwesDetach() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for u := range t.eachUnowned() {
		if u.Unconfirmed.IsZero() {
			return true
		}
	}
	for _, c := range t.claims {
		if !c.gone.IsZero() {
			return true
		}
	}
	return false
}
