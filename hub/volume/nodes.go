package volume

import "slices"

// node is how many entries have one of the slots of a node (maxPerNode), and which wait for one.
type node struct {
	taken   int
	waiting []*Entry
}

// takeSlot gives an entry a slot of its node. If all are taken it reports false, and the entry
// waits at the node.
func (t *Table) takeSlot(e *Entry) bool {
	name := e.place.Node
	if name == "" || e.slot {
		return true
	}
	n := t.nodes[name]
	if n == nil {
		n = &node{}
		t.nodes[name] = n
	}
	if t.slots > 0 && n.taken >= t.slots {
		n.waiting = append(n.waiting, e)
		e.state, e.wait = Ready, Wait{Kind: WaitNode}
		return false
	}
	n.taken++
	e.slot = true
	return true
}

// releaseSlot ends that, and lets the next entry into its lane.
func (t *Table) releaseSlot(e *Entry) {
	if !e.slot {
		return
	}
	e.slot = false
	n := t.nodes[e.place.Node]
	n.taken--
	t.admitWaiting(e.place.Node, n)
}

// admitWaiting lets as many entries into their lanes as a node has free slots, detaches first: they
// make room on the node.
func (t *Table) admitWaiting(name string, n *node) {
	free := len(n.waiting)
	if t.slots > 0 {
		free = min(free, t.slots-n.taken)
	}
	for range free {
		i := max(0, slices.IndexFunc(n.waiting, func(e *Entry) bool { return e.lane == DetachLane }))
		e := n.waiting[i]
		n.waiting = slices.Delete(n.waiting, i, i+1)
		n.taken++
		e.slot = true
		t.toLane(e, true)
	}
	if n.taken == 0 && len(n.waiting) == 0 {
		delete(t.nodes, name)
	}
}

// leaveNode ends the wait of an entry for a slot.
func (t *Table) leaveNode(e *Entry) {
	if n := t.nodes[e.place.Node]; n != nil {
		n.waiting = slices.DeleteFunc(n.waiting, func(other *Entry) bool { return other == e })
	}
}
