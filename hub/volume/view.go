package volume

import (
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// LaneView is what one lane has to do and does at one moment.
type LaneView struct {
	Queued, Delayed, Running int
	Oldest                   time.Duration // since the oldest that does not run was asked for
	Workers                  int           // that it may have now, those that the other lends it included
}

// Lanes returns what there is to do, by lane.
func (t *Table) Lanes(now time.Time) [LaneCount]LaneView {
	t.mu.Lock()
	defer t.mu.Unlock()
	var views [LaneCount]LaneView
	for _, e := range t.entries {
		l := &views[e.lane]
		switch e.state {
		case Running:
			l.Running++
			continue
		case Delayed:
			l.Delayed++
		default:
			l.Queued++
		}
		l.Oldest = max(l.Oldest, now.Sub(e.since))
	}
	views[AttachLane].Workers = max(0, t.lanes.most(AttachLane, now))
	views[DetachLane].Workers = max(0, t.lanes.most(DetachLane, now))
	views[DriftLane].Workers = max(1, t.lanes.workers/2)
	views[ReleaseLane].Workers = releaseWorkers
	return views
}

// EntryView is one entry at one moment.
type EntryView struct {
	Lane     Lane
	State    State
	Since    time.Time       // when it was asked for
	Due      time.Time       // of a delayed one
	Wait     Wait            // what one waits for that is blocked or ready
	Failures int             // in a row
	Error    string          // the last of them
	Cause    diagnosis.Cause // of Error
}

// Look returns the entry of a key, if there is one.
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
	return v, true
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

// IsWedged reports whether there are entries that could start, and nobody looks for them.
func (t *Table) IsWedged(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended { // what runs still may take as long as its grace
		return false
	}
	due := len(t.delayed) > 0 && now.Sub(t.delayed[0].due) > WedgedAfter
	return !t.looked.IsZero() && now.Sub(t.looked) > WedgedAfter && (due || t.lanes.pick(now) != nil)
}

// IsOwed reports whether a publication is unowned that this process has to see to.
func (t *Table) IsOwed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, v := range t.volumes {
		for _, u := range v.unowned {
			if u.Unconfirmed.IsZero() {
				return true
			}
		}
	}
	for _, c := range t.claims {
		if !c.gone.IsZero() {
			return true
		}
	}
	return false
}

// Workers returns how many calls may be in flight at once.
func (t *Table) Workers() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lanes.workers
}
