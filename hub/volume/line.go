package volume

import (
	"cmp"
	"slices"
	"time"
)

// The line of a full node has the attaches and repairs that Next lets start, and that the node has no place for. They
// are not in their lanes, and hold up nothing: Next counts them only against themselves. Run lets them go (letGo).

// isHeld reports whether an entry may not start because its node is full. An attach whose volume is published already
// needs no place.
func (t *Table) isHeld(e *Entry) bool {
	if len(t.full) == 0 || e.permit != noPermit || e.lane != AttachLane && e.lane != DriftLane || t.full[e.place.Node] == nil {
		return false
	}
	c := t.claims[e.Key.Name]
	return c == nil || c.publication.Belief != Published
}

// joinLine has an entry wait for a place on its node.
func (t *Table) joinLine(e *Entry) {
	n := t.full[e.place.Node]
	n.line = append(n.line, e)
	e.state, e.wait = Ready, Wait{Kind: WaitCapacity}
	e.noteWait()
	t.moveLines()
}

// moveLines has Run look whether an entry in a line may go.
func (t *Table) moveLines() {
	t.linesMove = true
	t.signal()
}

// letGo lets the entries go for which there is a permit, the longest asked for first. It forgets the nodes that count
// as full no more.
func (t *Table) letGo(now time.Time) {
	t.linesMove, t.probe = false, now.Add(time.Hour)
	for name, n := range t.full {
		for len(n.line) > 0 {
			p := n.full.offers(now)
			if p == noPermit {
				break
			}
			e := slices.MinFunc(n.line, func(a, b *Entry) int { return n.full.order(a, b, p) })
			n.full.take(p)
			t.withdraw(e)
			e.permit, e.state, e.waited = p, Blocked, true
			t.consider(e)
		}
		switch {
		case len(n.line) == 0 && n.taken == 0 && n.full.isOver(now):
			n.full = nil
			delete(t.full, name)
			t.tidyNode(name, n)
		case !n.full.tries && n.full.probe.After(now) && n.full.probe.Before(t.probe):
			t.probe = n.full.probe
		}
	}
}

// order compares two entries of the line: which one takes a permit. Repairs go last. An entry that was refused with a
// permit goes behind the others if there is no sure sign of a place: the driver may refuse that volume alone.
func (n *fullNode) order(a, b *Entry, p permit) int {
	refused := func(e *Entry) uint64 {
		if p == forTry && e.refusedAt > n.fresh {
			return e.refusedAt
		}
		return 0
	}
	repairs := func(e *Entry) int {
		if e.lane == DriftLane {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(refused(a), refused(b)), cmp.Compare(repairs(a), repairs(b)), a.since.Compare(b.since), cmp.Compare(a.Key.Name, b.Key.Name))
}

// published notes how a publish of an entry has ended. The entry is running.
func (t *Table) published(e *Entry, r Result) {
	switch {
	case e == nil:
	case r == NoPlace:
		t.refused(e)
	case r == Succeeded && e.permit != noPermit:
		if n := t.full[e.place.Node]; n != nil {
			n.full.succeed(e.permit)
			t.moveLines()
		}
		e.permit = noPermit
	}
}

// refused notes that the driver has refused a publish of an entry because the node is full.
func (t *Table) refused(e *Entry) {
	n := t.nodes[e.place.Node]
	if n == nil { // it names no node
		return
	}
	now := time.Now()
	t.steps++
	e.refused = true
	if n.full != nil {
		n.full.refuse(e.permit, now, t.pause)
		if e.permit != noPermit {
			e.permit, e.refusedAt = noPermit, t.steps
		}
		t.moveLines()
		return
	}
	full := newFullNode(now, int(n.detached-e.detached), t.pause)
	full.fresh = t.steps
	n.full, e.permit = &full, noPermit
	if t.full == nil {
		t.full = map[string]*node{}
	}
	t.full[e.place.Node] = n
	t.holdAll(e.place.Node)
	t.moveLines()
}

// holdAll takes the entries that may not start any more out of their lanes. It looks at all entries: a node becomes
// full rarely.
func (t *Table) holdAll(name string) {
	var held []*Entry
	for _, e := range t.entries {
		if e.place.Node == name && (e.state == Ready || e.state == Blocked) && t.isHeld(e) {
			held = append(held, e)
		}
	}
	for _, e := range held {
		t.withdraw(e)
		e.state = Blocked
	}
	for _, e := range held {
		if e.state == Blocked { // consider may have moved several of one volume
			t.consider(e)
		}
	}
}

// returnPermit gives back the permit of an entry that has not used it: the next in line takes it.
func (t *Table) returnPermit(e *Entry) {
	if e.permit == noPermit {
		return
	}
	if n := t.full[e.place.Node]; n != nil {
		n.full.giveBack(e.permit)
		t.moveLines()
	}
	e.permit = noPermit
}

// leaveLine ends an entry that waits in a line, and whose object is gone.
func (t *Table) leaveLine(key Key) {
	if e := t.entries[key]; e != nil && e.state == Ready && e.wait.Kind == WaitCapacity {
		t.withdraw(e)
		t.drop(e)
	}
}

// detachedFrom notes that a volume of the driver was detached from a node.
func (t *Table) detachedFrom(name string) {
	n := t.nodes[name]
	if n == nil {
		return
	}
	n.detached++
	if n.full != nil {
		n.full.detach()
		t.moveLines()
	}
}

// DetachedFrom notes that a volume was detached from a Kubernetes node otherwise than for a claim: one attach that
// waits for a place there may go.
func (t *Table) DetachedFrom(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.detachedFrom(node)
}

// NodeChanged notes that the limit of a Kubernetes node or the driver's registration on the node has changed: it may
// have places again.
func (t *Table) NodeChanged(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.full[node]; n != nil {
		t.steps++
		n.full.change(t.steps)
		t.moveLines()
	}
}

// SetPause sets how long an attach is not tried on a full node without a sign of a free place, after a number of
// refusals in a row, at least 1. pause must not block. Without it, that is a minute.
func (t *Table) SetPause(pause func(refused int) time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pause = pause
}

// FullNode is a full node at one moment.
type FullNode struct {
	Node    string
	Since   time.Time
	Line    []string  // VolumeAttachments that wait for a place, the next first
	NextTry time.Time // without a sign of a free place; zero if an attempt is in flight
}

// FullNodes returns the full nodes of the driver, the longest line first.
func (t *Table) FullNodes() []FullNode {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]FullNode, 0, len(t.full))
	for name, n := range t.full {
		line := slices.SortedFunc(slices.Values(n.line), func(a, b *Entry) int { return n.full.order(a, b, forPlace) })
		v := FullNode{Node: name, Since: n.full.since, Line: make([]string, len(line))}
		for i, e := range line {
			v.Line[i] = e.Key.Name
		}
		if !n.full.tries {
			v.NextTry = n.full.probe
		}
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b FullNode) int {
		return cmp.Or(cmp.Compare(len(b.Line), len(a.Line)), cmp.Compare(a.Node, b.Node))
	})
	return all
}

// position returns the place of an entry in the line of the node, from 1.
func (n *node) position(e *Entry) int {
	position := 1
	for _, other := range n.line {
		if n.full.order(other, e, forPlace) < 0 {
			position++
		}
	}
	return position
}
