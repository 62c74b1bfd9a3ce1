package queue

import (
	"cmp"
	"slices"
	"time"
)

// node has the slots of a Kubernetes node: at most maxPerNode items that may call the driver for it. After the driver has
// refused a publish there because the node is full, attaches that need a place wait in its line. It exists while items
// use it, or it is full.
type node struct {
	name    string
	taken   int
	waiting []*Item // for a slot

	detached uint64    // volumes that were detached from it
	full     *fullNode // nil: the driver has refused no publish there
	line     []*Item   // for a place, the first to take one first
	alarm    alarm     // when the next try may go
	offered  bool      // it is in the Queue's offers
}

// takeSlot gives an item that is in its lane a slot of its node. If all are taken it reports false, and the item
// waits at the node.
func (q *Queue) takeSlot(e *Item) bool {
	name := e.place.Node
	if name == "" || e.slot {
		return true
	}
	n := q.nodes[name]
	if n == nil {
		n = &node{name: name}
		n.alarm.node = n
		q.nodes[name] = n
	}
	if q.perNode > 0 && n.taken >= q.perNode {
		q.lanes.leave(e)
		n.waiting = append(n.waiting, e)
		q.park(e, Wait{Kind: WaitNode})
		return false
	}
	n.give(e)
	return true
}

// give gives an item a slot.
func (n *node) give(e *Item) {
	n.taken++
	e.slot, e.detached = true, n.detached
}

// freeSlot frees the slot of an item, and lets the next item that waits for it into its lane.
func (q *Queue) freeSlot(e *Item) {
	if !e.slot {
		return
	}
	e.slot = false
	n := q.nodes[e.place.Node]
	n.taken--
	q.signalSlots(n)
	q.signalNode(n) // it may count as full no more
}

// signalSlots lets as many waiting items into their lanes as their node has free slots, detaches
// first: they make room on the node.
func (q *Queue) signalSlots(n *node) {
	free := len(n.waiting)
	if q.perNode > 0 {
		free = min(free, q.perNode-n.taken)
	}
	for range free {
		i := max(0, slices.IndexFunc(n.waiting, func(e *Item) bool { return e.lane == DetachLane }))
		e := n.waiting[i]
		n.waiting = slices.Delete(n.waiting, i, i+1)
		n.give(e)
		q.toLane(e, true)
	}
	q.tidy(n)
}

// tidy removes a node that nothing uses.
func (q *Queue) tidy(n *node) {
	if n.taken == 0 && len(n.waiting) == 0 && n.full == nil {
		delete(q.nodes, n.name)
	}
}

// leaveNode removes an item from those that wait for a slot or a place.
func (q *Queue) leaveNode(e *Item) {
	n := q.nodes[e.place.Node]
	switch e.wait.Kind {
	case WaitNode:
		n.waiting = slices.DeleteFunc(n.waiting, func(other *Item) bool { return other == e })
		q.tidy(n)
	case WaitCapacity:
		i := n.position(e)
		n.line = slices.Delete(n.line, i, i+1)
		q.signalNode(n)
	}
}

// needsPlace reports whether an item may not start because its node is full.
func (q *Queue) needsPlace(e *Item) bool {
	if e.permit != noPermit || e.lane != AttachLane && e.lane != DriftLane {
		return false
	}
	n := q.nodes[e.place.Node]
	return n != nil && n.full != nil && q.beliefs.NeedsPlace(e.Key, e.place, e.lane == DriftLane)
}

// hold takes an item out of its lane, or from those that wait for a slot: its node is full.
func (q *Queue) hold(e *Item) {
	q.withdraw(e)
	q.park(e, Wait{Kind: WaitVolume})
	q.reconsider(e)
}

// joinLine has an item wait for a place on its node.
func (q *Queue) joinLine(e *Item) {
	n := q.nodes[e.place.Node]
	n.line = slices.Insert(n.line, n.position(e), e)
	q.park(e, Wait{Kind: WaitCapacity})
	q.signalNode(n)
}

// position returns the place of an item in the line of a node, from 0. Repairs go last, and those that were refused go behind
// the others: the driver may refuse that volume alone. Else the longest asked for goes first.
func (n *node) position(e *Item) int {
	i, _ := slices.BinarySearchFunc(n.line, e, func(a, b *Item) int {
		return cmp.Or(cmp.Compare(a.lane, b.lane), cmp.Compare(a.refusedAt, b.refusedAt), a.since.Compare(b.since), cmp.Compare(a.Key.Name, b.Key.Name))
	})
	return i
}

// signalNode has take look whether items in the line of a node may go.
func (q *Queue) signalNode(n *node) {
	if n.full != nil && !n.offered {
		n.offered = true
		q.offers = append(q.offers, n)
		q.signal()
	}
}

// offerPlaces lets the items go for which a node has permits. It forgets nodes that count as full no more.
func (q *Queue) offerPlaces(now time.Time) {
	for len(q.offers) > 0 {
		n := q.offers[0]
		q.offers = q.offers[1:]
		n.offered = false
		if n.full == nil {
			continue
		}
		var gone []*Item
		for len(n.line) > 0 {
			e := n.line[0]
			p := n.full.offers(e.Key.Name, now)
			if p == noPermit {
				break
			}
			n.full.take(p)
			n.line = n.line[1:]
			e.permit, e.waited = p, true
			q.park(e, Wait{Kind: WaitVolume})
			gone = append(gone, e)
		}
		for _, e := range slices.Backward(gone) { // each goes to the head of its lane
			if e.state == Parked && !e.mayStart() { // else another one of its volume has moved it
				q.reconsider(e)
			}
		}
		q.alarms.unset(&n.alarm)
		switch at := n.next(); {
		case len(n.line) == 0 && n.taken == 0 && n.full.isOver(now):
			n.full = nil
			q.tidy(n)
		case at.After(now):
			q.alarms.set(&n.alarm, at)
		}
	}
}

// next returns when the next try may go without a sign of a free place, zero if one is in flight.
func (n *node) next() time.Time {
	switch {
	case n.full.tries > 0:
		return time.Time{}
	case len(n.line) > 0:
		return n.full.tryAt(n.line[0].Key.Name)
	}
	return n.full.until
}

// PublishedLocked notes that a publish of an item has succeeded.
func (q *Queue) PublishedLocked(key Key) {
	if e := q.items[key]; e != nil {
		q.endPermit(e, (*fullNode).succeed)
	}
}

// RefusedLocked notes that the driver has refused a publish of an item because the node is full.
func (q *Queue) RefusedLocked(key Key) {
	e := q.items[key]
	if e == nil || q.nodes[e.place.Node] == nil { // it names no node
		return
	}
	n, now := q.nodes[e.place.Node], time.Now()
	q.steps++
	if e.refusedAt = q.steps; n.full != nil {
		n.full.refuse(key.Name, e.permit, now, q.pause)
	} else {
		n.full = newFullNode(key.Name, now, int(n.detached-e.detached), q.pause)
		for _, other := range slices.Clone(n.waiting) {
			if q.needsPlace(other) {
				q.hold(other)
			}
		}
	}
	e.permit = noPermit
	q.signalNode(n)
}

// returnPermit gives back the permit of an item that has not used it: the next in line takes it.
func (q *Queue) returnPermit(e *Item) { q.endPermit(e, (*fullNode).giveBack) }

// endPermit ends the permit of an item, if it has one.
func (q *Queue) endPermit(e *Item, how func(*fullNode, permit)) {
	if e.permit == noPermit {
		return
	}
	if n := q.nodes[e.place.Node]; n != nil && n.full != nil { // else it counts as full no more
		how(n.full, e.permit)
		q.signalNode(n)
	}
	e.permit = noPermit
}

// LeaveLineLocked ends the item of a key that waits for a place, and whose object is gone.
func (q *Queue) LeaveLineLocked(key Key) {
	if e := q.items[key]; e != nil && e.state == Parked && e.wait.Kind == WaitCapacity {
		q.withdraw(e)
		q.drop(e)
	}
}

// DetachedFrom notes that a volume was detached from a Kubernetes node otherwise than for a VolumeAttachment.
func (q *Queue) DetachedFrom(node string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.DetachedLocked("", node)
}

// DetachedLocked notes that a volume was detached from a Kubernetes node: one attach that waits for a place there may go.
// Attaches of the volume elsewhere that need it for themselves are tried again at once: the driver may have refused them
// because of that.
func (q *Queue) DetachedLocked(handle, node string) {
	for _, e := range q.volumes[handle] {
		if e.lane == AttachLane && e.state == Delayed && !e.place.Shared {
			q.retryNow(e)
		}
	}
	n := q.nodes[node]
	if n == nil {
		return
	}
	n.detached++
	if n.full != nil {
		n.full.places++
		q.signalNode(n)
	}
}

// NodeChanged notes that the limit of a Kubernetes node or the driver's registration on the node has changed: it may
// have places again.
func (q *Queue) NodeChanged(node string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := q.nodes[node]; n != nil && n.full != nil {
		n.full.change()
		q.signalNode(n)
	}
}

// SetPause sets how long an attach is not tried on a full node without a sign of a free place, after a number of
// refusals in a row, at least 1. pause must not block. Without it, that is a minute.
func (q *Queue) SetPause(pause func(refused int) time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pause = pause
}
