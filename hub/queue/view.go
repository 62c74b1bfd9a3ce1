package queue

import (
	"cmp"
	"slices"
	"time"
)

// Workers returns how many items of a lane may run now, with the workers that the other lane lends it.
func (q *Queue) Workers(l Lane, now time.Time) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch l {
	case DriftLane:
		return max(1, q.lanes.workers/4)
	case FinalizerLane:
		return finalizerWorkers
	}
	return max(0, q.lanes.most(l, now))
}

// All returns the progress of all items, and whether they are all the work that the objects ask for. They are not before the driver
// could be called for the first time in a term, and after the term.
func (q *Queue) All() (all map[Key]Progress, complete bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	all = make(map[Key]Progress, len(q.items))
	for key, e := range q.items {
		all[key] = e.Progress
	}
	return all, q.items != nil && (q.lanes.open || q.lanes.shut)
}

// Calls returns the calls in flight, in any order.
func (q *Queue) Calls() (calls []Flight) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range q.items {
		if !e.Call.Since.IsZero() {
			calls = append(calls, e.Call)
		}
	}
	return calls
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
