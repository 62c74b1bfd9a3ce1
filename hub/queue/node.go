package queue

import (
	"cmp"
	"slices"
	"time"
)

// node is a Kubernetes node: at most maxPerNode items may call the driver for it. After the driver has refused a publish
// there because the node is full, attaches that need a place wait for one. It exists while items use it, or it is full.
type node struct {
	name      string
	taken     int       // slots
	parked    []*Item   // for a slot or a place, the first to go first
	detached  uint64    // volumes that were detached from it
	full      *fullNode // nil: the driver has refused no publish there
	alarm     alarm     // when the next try may go
	signalled bool      // take has to look whether parked items may go
}

// enter gives an item that is in its lane a slot of its node. If the item has to wait for one, or for a place, enter parks it
// and reports false.
func (q *Queue) enter(e *Item) bool {
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
	switch {
	case q.needsPlace(e):
		q.lanes.leave(e)
		q.parkAt(n, e, WaitCapacity)
		q.signalVolume(e.place.Target.VolumeHandle) // it holds nobody up any more
	case q.hasSlot(n):
		n.give(e)
	default:
		q.lanes.leave(e)
		q.parkAt(n, e, WaitNode)
	}
	return e.slot
}

// parkAt has an item that is in no list wait for a slot or a place of its node.
func (q *Queue) parkAt(n *node, e *Item, kind WaitKind) {
	q.park(e, Wait{Kind: kind})
	i, _ := slices.BinarySearchFunc(n.parked, e, inOrderOfNode)
	n.parked = slices.Insert(n.parked, i, e)
	if kind == WaitCapacity {
		q.signalNode(n)
	}
}

// inOrderOfNode orders the items that wait at a node: detaches make room, and repairs go last. Attaches that were refused
// go behind the others, as the driver may refuse their volumes alone. Else the longest asked for goes first.
func inOrderOfNode(a, b *Item) int {
	rank := [LaneCount]int{DetachLane: 0, AttachLane: 1, DriftLane: 2}
	return cmp.Or(cmp.Compare(rank[a.Lane], rank[b.Lane]), cmp.Compare(a.refusedAt, b.refusedAt), a.Asked.Compare(b.Asked), cmp.Compare(a.Key.Name, b.Key.Name))
}

// hasSlot reports whether one more item may call the driver for a node.
func (q *Queue) hasSlot(n *node) bool { return q.limits.PerNode == 0 || n.taken < q.limits.PerNode }

// give gives an item a slot.
func (n *node) give(e *Item) {
	n.taken++
	e.slot, e.detached = true, n.detached
}

// freeSlot frees the slot of an item: the next one that waits for it goes.
func (q *Queue) freeSlot(e *Item) {
	if !e.slot {
		return
	}
	e.slot = false
	n := q.nodes[e.place.Node]
	n.taken--
	q.signalNode(n)
}

// needsPlace reports whether an item may not start because its node is full.
func (q *Queue) needsPlace(e *Item) bool {
	if e.permit != noPermit || e.Lane != AttachLane && e.Lane != DriftLane {
		return false
	}
	n := q.nodes[e.place.Node]
	return n != nil && n.full != nil && q.beliefs.NeedsPlace(e.Key, e.place, e.Lane == DriftLane)
}

// line returns the items that wait for a place, the next first.
func (n *node) line() []*Item {
	return slices.DeleteFunc(slices.Clone(n.parked), func(e *Item) bool { return e.Wait.Kind != WaitCapacity })
}

// signalNode has take look whether items that wait at a node may go. It removes a node that nothing uses.
func (q *Queue) signalNode(n *node) {
	switch {
	case n.taken == 0 && len(n.parked) == 0 && n.full == nil:
		delete(q.nodes, n.name)
	case !n.signalled:
		n.signalled = true
		q.signalled = append(q.signalled, n)
		q.signal()
	}
}

// offerNodes lets the items go that wait at nodes that were signalled.
func (q *Queue) offerNodes(now time.Time) {
	for len(q.signalled) > 0 {
		n := q.signalled[0]
		q.signalled = q.signalled[1:]
		n.signalled = false
		var gone []*Item
		for i := 0; i < len(n.parked) && q.hasSlot(n); {
			e := n.parked[i]
			if q.needsPlace(e) {
				if e.permit = n.full.offer(e.Key.Name, now); e.permit == noPermit {
					i++
					continue
				}
			}
			n.parked = slices.Delete(n.parked, i, i+1)
			n.give(e)
			e.waited = true
			q.park(e, Wait{Kind: WaitVolume})
			gone = append(gone, e)
		}
		for _, e := range slices.Backward(gone) { // each goes to the head of its lane
			q.reconsider(e)
		}
		q.watch(n, now)
	}
}

// watch has take look again at a full node when the next try may go there. It forgets that the node is full if nobody waits
// for a place, and a try may go.
func (q *Queue) watch(n *node, now time.Time) {
	q.alarms.unset(&n.alarm)
	if n.full == nil {
		return
	}
	line := n.line()
	switch at := n.full.nextTry(line); {
	case len(line) == 0 && n.taken == 0 && n.full.isOver(now):
		n.full = nil
		q.signalNode(n)
	case at.After(now):
		q.alarms.set(&n.alarm, at)
	}
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
	if n.full == nil {
		n.full = &fullNode{since: now, places: int(n.detached - e.detached)} // the answer may be from before these detaches
		e.permit = forPlace
		for _, other := range slices.Clone(n.parked) {
			if q.needsPlace(other) {
				other.Wait.Kind = WaitCapacity
				q.signalVolume(other.place.Target.VolumeHandle) // it holds nobody up any more
			}
		}
	}
	n.full.refuse(key.Name, e.permit, now, q.limits.Pause)
	q.steps++
	e.permit, e.refusedAt = noPermit, q.steps
	q.signalNode(n)
}

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
		if e.Lane == AttachLane && e.State == Delayed && !e.place.Shared {
			q.retryNow(e)
		}
	}
	if n := q.nodes[node]; n != nil {
		n.detached++
		if n.full != nil {
			n.full.places++
			q.signalNode(n)
		}
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
