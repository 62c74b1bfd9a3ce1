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
	blocked   []*Item   // for a slot or a place, the first to go first
	detached  int       // volumes that were detached from it
	full      *fullNode // nil: the driver has refused no publish there
	signalled bool      // an alarm has Start look whether blocked items may go
}

// fullNode is what is known of a node on which the driver has refused a publish with ResourceExhausted. By the CSI
// spec, further publishes fail until a volume is detached from the node.
type fullNode struct {
	since   time.Time // when the driver refused the first publish
	free    int       // attaches that may go now: one for each detach, and two for each success without a pause
	tries   int       // attaches in flight that need a place
	refused int       // refusals without success between them, those in a pause not counted
	until   time.Time // end of the pause: one may go if none is in flight
	soon    time.Time // end of the pause for a volume that was never refused
}

// nodeOf returns the node of an item that has no slot of it yet, nil if there is none.
func (q *Queue) nodeOf(e *Item) *node {
	name := e.dest.Node
	if name == "" || e.slot {
		return nil
	}
	if q.nodes[name] == nil {
		q.nodes[name] = &node{name: name}
	}
	return q.nodes[name]
}

// blockAt has an item that is in no list wait for a slot of its node, and for a place if the node is full.
func (q *Queue) blockAt(n *node, e *Item) {
	q.block(e, Wait{Kind: WaitNode})
	n.blocked = insert(n.blocked, e, inOrderOfNode)
	q.signalNode(n)
}

// inOrderOfNode orders the items that wait at a node: detaches make room, and repairs go last. Attaches that were refused
// go behind the others, as the driver may refuse their volumes alone. Else the item that was required first goes first.
func inOrderOfNode(a, b *Item) int {
	rank := [LaneCount]int{DetachLane: 0, AttachLane: 1, DriftLane: 2}
	return cmp.Or(cmp.Compare(rank[a.Lane], rank[b.Lane]), cmp.Compare(a.refusedAt, b.refusedAt), a.Required.Compare(b.Required), cmp.Compare(a.Key.Name, b.Key.Name))
}

// hasSlot reports whether one more item may call the driver for a node.
func (q *Queue) hasSlot(n *node) bool { return q.limits.PerNode == 0 || n.taken < q.limits.PerNode }

// give gives an item a slot.
func (n *node) give(e *Item) {
	n.taken++
	e.slot, e.detached = true, n.detached
}

// leaveNode takes an item's slot, and a permit that it has not used: the next one that waits goes.
func (q *Queue) leaveNode(e *Item) {
	if !e.slot {
		return
	}
	n := q.nodes[e.dest.Node]
	n.taken--
	e.slot = false
	if e.permit {
		e.permit = false
		n.full.tries--
		n.full.free++
	}
	q.signalNode(n)
}

// needsCapacity reports whether an item may not start because its node is full.
func (q *Queue) needsCapacity(e *Item) bool {
	if e.permit || e.Lane != AttachLane && e.Lane != DriftLane {
		return false
	}
	n := q.nodes[e.dest.Node]
	return n != nil && n.full != nil && q.beliefs.NeedsCapacity(e.Key, e.dest, e.Lane == DriftLane)
}

// line returns the items that wait for a place on a node, the next first.
func (q *Queue) line(n *node) []*Item {
	return slices.DeleteFunc(slices.Clone(n.blocked), func(e *Item) bool { return !q.needsCapacity(e) })
}

// tryAt returns when an attach may go to a full node without a sign of a free place. While only one that waits in a line was
// refused, the driver may refuse that volume alone: another one goes after the first pause.
func (n *fullNode) tryAt(line []*Item) time.Time {
	refused := 0
	for _, e := range line {
		refused += int(min(e.refusedAt, 1))
	}
	if refused < min(2, len(line)) {
		return n.soon
	}
	return n.until
}

// signalNode has Start look whether items that wait at a node may go.
func (q *Queue) signalNode(n *node) {
	if !n.signalled {
		n.signalled = true
		q.setAlarm(alarm{node: n.name})
	}
}

// offer lets the items go that wait at a node, as far as it has slots and places. It forgets a node that nothing uses, and
// that a node is full if nobody waits there and a try may go.
func (q *Queue) offer(n *node, now time.Time) {
	n.signalled = false
	var at time.Time
	if n.full != nil {
		at = n.full.tryAt(q.line(n))
	}
	var gone []*Item
	for i := 0; i < len(n.blocked) && q.hasSlot(n); i++ {
		e := n.blocked[i]
		needs := q.needsCapacity(e)
		if needs && n.full.free == 0 && (n.full.tries > 0 || now.Before(at) || e.refusedAt > 0 && now.Before(n.full.until)) {
			continue
		}
		if e.permit = needs; needs {
			n.full.free = max(0, n.full.free-1)
			n.full.tries++
		}
		n.give(e)
		gone = append(gone, e)
	}
	for _, e := range gone {
		n.blocked = remove(n.blocked, e)
		q.block(e, Wait{Kind: WaitVolume})
	}
	for _, e := range gone {
		q.reconsider(e)
	}
	if n.taken == 0 && len(n.blocked) == 0 && (n.full == nil || !at.After(now)) {
		delete(q.nodes, n.name)
	}
}

// AnsweredLocked notes that the driver has answered a publish of an item: it was refused because the node is full, or has
// succeeded. After a success two more may go, unless the node pauses: then a detach has let this one go. An item that is
// refused goes to the end of the line. After that others may go for volumes that were detached since its publish began, as the
// answer may be from before.
func (q *Queue) AnsweredLocked(key Key, refused bool) {
	e := q.items[key]
	if e == nil || !e.slot || !refused && !e.permit {
		return // without a slot it names no node
	}
	n, now := q.nodes[e.dest.Node], time.Now()
	q.signalNode(n)
	if n.full == nil {
		n.full = &fullNode{since: now, free: n.detached}
		for _, other := range slices.Clone(n.blocked) {
			q.signalVolume(other.dest.Target.VolumeHandle) // those that need a place hold nobody up any more
		}
	}
	f := n.full
	if e.permit {
		e.permit = false
		f.tries--
	}
	switch pauses := now.Before(f.until); {
	case refused:
		q.steps++
		e.refusedAt, e.repeats = q.steps, 0
		f.free = min(f.free, n.detached-e.detached)
		if !pauses {
			f.refused++
			f.until, f.soon = now.Add(q.limits.Pause(f.refused)), now.Add(q.limits.Pause(1))
			q.setAlarm(alarm{at: f.until, node: n.name})
			q.setAlarm(alarm{at: f.soon, node: n.name})
		}
	case !pauses:
		f.free += 2
		f.endPause()
	}
}

// endPause lets a try go as soon as no other one is in flight.
func (n *fullNode) endPause() { n.refused, n.until, n.soon = 0, time.Time{}, time.Time{} }

// DetachedLocked notes that a volume was detached from a Kubernetes node: one attach that waits for a place there may go.
// Attaches of the volume elsewhere that need it for themselves are tried again at once: the driver may have refused them
// because of that.
func (q *Queue) DetachedLocked(handle, node string) {
	for _, e := range q.volumes[handle] {
		if e.Lane == AttachLane && e.State == Delayed && !e.dest.Shared {
			q.retryNow(e)
		}
	}
	if n := q.nodes[node]; n != nil {
		n.detached++
		if n.full != nil {
			n.full.free++
			q.signalNode(n)
		}
	}
}

// NodeChanged notes that the limit of a Kubernetes node or the driver's registration on the node has changed: it may
// have places again.
func (q *Queue) NodeChanged(node string) {
	defer q.lock()()
	if n := q.nodes[node]; n != nil && n.full != nil {
		n.full.endPause()
		q.signalNode(n)
	}
}
