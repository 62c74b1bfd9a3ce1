package queue

import (
	"cmp"
	"slices"
	"time"
)

// LaneView is one lane at one moment.
type LaneView struct {
	Queued, Delayed, Running int
	Failing                  int       // of these, items whose last run has failed; those that wait for a place do not count
	FailingSince             time.Time // when the oldest of these was asked for; zero if there is none
	OldestSince              time.Time // when the oldest item that does not run was asked for; zero if there is none
	Workers                  int       // most that it may have now, with those that the other lane lends it
	Calls                    int       // in flight
	OldestCall               Flight    // zero: none is in flight
}

// Lanes returns a view of each lane.
func (q *Queue) Lanes(now time.Time) [LaneCount]LaneView {
	q.mu.Lock()
	defer q.mu.Unlock()
	var views [LaneCount]LaneView
	for _, e := range q.items {
		l := &views[e.Lane]
		if e.Tries > 0 && !(e.State == Parked && e.Wait.Kind == WaitCapacity) {
			l.Failing++
			if l.FailingSince.IsZero() || e.Asked.Before(l.FailingSince) {
				l.FailingSince = e.Asked
			}
		}
		if c := e.Call; !c.Since.IsZero() {
			l.Calls++
			if l.OldestCall.Since.IsZero() || c.Since.Before(l.OldestCall.Since) {
				l.OldestCall = c
			}
		}
		switch e.State {
		case Running:
			l.Running++
			continue
		case Delayed:
			l.Delayed++
		default:
			l.Queued++
		}
		if l.OldestSince.IsZero() || e.Asked.Before(l.OldestSince) {
			l.OldestSince = e.Asked
		}
	}
	views[AttachLane].Workers = max(0, q.lanes.most(AttachLane, now))
	views[DetachLane].Workers = max(0, q.lanes.most(DetachLane, now))
	views[DriftLane].Workers = max(1, q.lanes.workers/4)
	views[FinalizerLane].Workers = finalizerWorkers
	return views
}

// Look returns the progress of the item of a key, and whether there is one. The Wait of an item that starts in a moment is
// WaitNothing.
func (q *Queue) Look(key Key) (Progress, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.items[key]
	if e == nil {
		return Progress{}, false
	}
	p := e.Progress
	switch {
	case e.State == Delayed:
		p.Due = e.alarm.at
	case e.State == Ready && q.lanes.mayStart(e.Lane, time.Now()):
		p.Wait.Kind = WaitNothing
	case e.State == Parked && e.Wait.Kind == WaitCapacity:
		p.Wait.Position = slices.Index(q.nodes[e.place.Node].line(), e) + 1
	}
	return p, true
}

// Requested returns the names of the VolumeAttachments that have an item, in any order, and whether the items are all the work
// that the objects ask for. They are not before the driver could be called for the first time in a term, and after the term.
func (q *Queue) Requested() (names []string, all bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for key := range q.items {
		if key.Kind == ClaimKind {
			names = append(names, key.Name)
		}
	}
	return names, q.items != nil && (q.lanes.open || q.lanes.shut)
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
