package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// LaneView is one lane at one moment.
type LaneView struct {
	Queued, Delayed, Running int
	Failing                  int       // of these, items whose last run has failed; those that wait for a place do not count
	FailingSince             time.Time // when the oldest of these was asked for; zero if there is none
	OldestSince              time.Time // when the oldest item that does not run was asked for; zero if there is none
	Workers                  int       // most that it may have now, with those that the other lane lends it
}

// Lanes returns a view of each lane.
func (q *Queue) Lanes(now time.Time) [LaneCount]LaneView {
	q.mu.Lock()
	defer q.mu.Unlock()
	var views [LaneCount]LaneView
	for _, e := range q.items {
		l := &views[e.lane]
		if e.failures > 0 && !(e.state == Parked && e.wait.Kind == WaitCapacity) {
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
	views[AttachLane].Workers = max(0, q.lanes.most(AttachLane, now))
	views[DetachLane].Workers = max(0, q.lanes.most(DetachLane, now))
	views[DriftLane].Workers = max(1, q.lanes.workers/4)
	views[FinalizerLane].Workers = finalizerWorkers
	return views
}

// ItemView is one item at one moment.
type ItemView struct {
	Lane     Lane
	State    State
	Since    time.Time       // when it was asked for
	Due      time.Time       // only if it is Delayed
	Wait     Wait            // only if it is Ready or Parked; WaitNothing if it starts in a moment
	Failures int             // in a row
	Error    string          // the last of them
	Cause    diagnosis.Cause // of Error
}

// Look returns a view of the item of a key, and whether there is one.
func (q *Queue) Look(key Key) (ItemView, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.items[key]
	if e == nil {
		return ItemView{}, false
	}
	v := ItemView{Lane: e.lane, State: e.state, Since: e.since, Wait: e.wait, Failures: e.failures, Error: e.failure, Cause: e.cause}
	if e.state == Delayed {
		v.Due = e.alarm.at
	}
	if e.state == Parked && e.wait.Kind == WaitCapacity {
		v.Wait.Position = slices.Index(q.nodes[e.place.Node].line(), e) + 1
	}
	if e.state == Ready && e.wait.Kind == WaitWorker && q.lanes.mayStart(e.lane, time.Now()) {
		v.Wait.Kind = WaitNothing
	}
	return v, true
}

// Knows reports whether the items are all the work that the objects ask for. They are not before the driver could
// be called for the first time in a term, and after the term.
func (q *Queue) Knows() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.items != nil && (q.lanes.open || q.lanes.shut)
}

// Requested returns the names of the VolumeAttachments that have an item, in any order.
func (q *Queue) Requested() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	names := make([]string, 0, len(q.items))
	for key := range q.items {
		if key.Kind == ClaimKind {
			names = append(names, key.Name)
		}
	}
	return names
}

// Has reports whether there is an item of a key, in whatever state.
func (q *Queue) Has(key Key) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.items[key] != nil
}

// IsCalling reports whether an item runs that may call the driver.
func (q *Queue) IsCalling() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lanes.inFlight() > 0
}

// IsWedged reports whether an item could start, and Run has not looked for WedgedAfter.
func (q *Queue) IsWedged(now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended { // items that still run may take as long as the shutdown grace
		return false
	}
	due := len(q.alarms) > 0 && now.Sub(q.alarms[0].at) > WedgedAfter
	return !q.looked.IsZero() && now.Sub(q.looked) > WedgedAfter && (due || q.lanes.pick(now) != nil)
}

// FullNode is a full node at one moment.
type FullNode struct {
	Node    string
	Since   time.Time
	Line    []string  // VolumeAttachments that wait for a place, the next first
	NextTry time.Time // without a sign of a free place; zero if an attempt is in flight
}

// FullNodes returns the full nodes of the driver, the longest line first.
func (q *Queue) FullNodes() []FullNode {
	q.mu.Lock()
	defer q.mu.Unlock()
	var all []FullNode
	for _, n := range q.nodes {
		if n.full == nil {
			continue
		}
		line := n.line()
		v := FullNode{Node: n.name, Since: n.full.since, NextTry: n.full.nextTry(line)}
		for _, e := range line {
			v.Line = append(v.Line, e.Key.Name)
		}
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b FullNode) int {
		return cmp.Or(cmp.Compare(len(b.Line), len(a.Line)), cmp.Compare(a.Node, b.Node))
	})
	return all
}
