package queue

import (
	"cmp"
	"slices"
	"time"
)

// All returns the progress of all items, and whether they are all the work that the objects require. They are not before the driver
// could be called for the first time in a term, and after the term.
func (q *Queue) All() (all map[Key]Progress, complete bool) {
	defer q.lock()()
	all = make(map[Key]Progress, len(q.items))
	for key, e := range q.items {
		all[key] = q.progress(e)
	}
	return all, q.items != nil && (q.open || q.shut)
}

// progress returns the progress of an item. Its Wait says whether its node is full.
func (q *Queue) progress(e *Item) Progress {
	p := e.Progress
	if e.State == Blocked && e.Wait.Kind == WaitNode && q.needsCapacity(e) {
		p.Wait.Kind = WaitCapacity
	}
	return p
}

// Look returns the progress of the item of a key, and whether there is one. The Wait of an item that starts in a moment is
// WaitNothing.
func (q *Queue) Look(key Key) (Progress, bool) {
	defer q.lock()()
	e := q.items[key]
	if e == nil {
		return Progress{Wait: Wait{Kind: WaitNothing}}, false
	}
	p := q.progress(e)
	switch {
	case e.State == Ready && q.mayStart(e.Lane, time.Now()):
		p.Wait.Kind = WaitNothing
	case e.State == Blocked && p.Wait.Kind == WaitCapacity:
		p.Wait.Position = slices.Index(q.line(q.nodes[e.dest.Node]), e) + 1
	}
	return p, true
}

// Has reports whether there is an item of a key, in whatever state.
func (q *Queue) Has(key Key) bool {
	defer q.lock()()
	return q.items[key] != nil
}

// IsCalling reports whether an item runs that may call the driver.
func (q *Queue) IsCalling() bool {
	defer q.lock()()
	return q.inFlight() > 0
}

// IsWedged reports whether an item could start, and Run has not looked for WedgedAfter.
func (q *Queue) IsWedged(now time.Time) bool {
	defer q.lock()()
	return !q.looked.IsZero() && now.Sub(q.looked) > WedgedAfter && (q.idle(now) < -WedgedAfter || q.pick(now) != nil)
}

// Workers returns how many items of a lane may run now, with the workers that the other lane lends it.
func (q *Queue) Workers(l Lane, now time.Time) int {
	defer q.lock()()
	return q.most(l, now)
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
	defer q.lock()()
	var all []FullNode
	for _, n := range q.nodes {
		if n.full == nil {
			continue
		}
		line := q.line(n)
		v := FullNode{Node: n.name, Since: n.full.since}
		if n.full.tries == 0 {
			v.NextTry = n.full.tryAt(line)
		}
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
