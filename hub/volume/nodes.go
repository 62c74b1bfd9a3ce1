package volume

import "slices"

// node has the slots of a Kubernetes node: at most maxPerNode entries that may call the driver for it. It exists while
// entries use it, or it is full.
type node struct {
	taken   int
	waiting []*Entry // for a slot

	detached uint64    // volumes that were detached from it
	full     *fullNode // nil: the driver has refused no publish there
	line     []*Entry  // for a place, the first to take one first
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
	e.slot, e.detached = true, n.detached
	return true
}

// freeSlot frees the slot of an entry, and lets the next entry that waits for it into its lane.
func (t *Table) freeSlot(e *Entry) {
	if !e.slot {
		return
	}
	e.slot = false
	n := t.nodes[e.place.Node]
	n.taken--
	t.admitWaiting(e.place.Node, n)
	if n.full != nil && n.taken == 0 {
		t.moveLine(e.place.Node) // it may count as full no more
	}
}

// admitWaiting lets as many waiting entries into their lanes as their node has free slots, detaches
// first: they make room on the node.
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
		e.slot, e.detached = true, n.detached
		t.toLane(e, true)
	}
	t.tidyNode(name, n)
}

// tidyNode removes a node that nothing uses.
func (t *Table) tidyNode(name string, n *node) {
	if n.taken == 0 && len(n.waiting) == 0 && n.full == nil {
		delete(t.nodes, name)
	}
}

// leaveWaiting removes an entry from those that wait for a slot or a place.
func (t *Table) leaveWaiting(e *Entry) {
	n := t.nodes[e.place.Node]
	switch {
	case n == nil:
	case e.wait.Kind != WaitCapacity:
		n.waiting = slices.DeleteFunc(n.waiting, func(other *Entry) bool { return other == e })
	default:
		if i, found := slices.BinarySearchFunc(n.line, e, inLine); found {
			n.line = slices.Delete(n.line, i, i+1)
		}
	}
}
