package volume

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// The line of a full node has the attaches and repairs that Next lets start, and that the node has no place for. They
// are not in their lanes, and hold up nothing: Next counts them only against themselves. Run lets them go (letGo).
// When a node becomes full, Run moves those that are in a lane into the line as they come to its head.

// probesEvery is how often letGo at most looks at all full nodes for tries without a sign of a free place.
const probesEvery = 20 * time.Millisecond

// mostHeld is how many entries Run moves from lanes into lines under one lock of the Table.
const mostHeld = 200

// isHeld reports whether an entry may not start because its node is full.
func (t *Table) isHeld(e *Entry) bool {
	if len(t.full) == 0 || e.permit != noPermit || e.lane != AttachLane && e.lane != DriftLane || t.full[e.place.Node] == nil {
		return false
	}
	var believed Publication
	at := e.place
	if c := t.claims[e.Key.Name]; c != nil {
		believed = c.publication
		at.Noted = false // its worker may have written the note, and has called nothing if nothing is believed
	}
	return needsPlace(believed, e.lane == DriftLane, t.unowned(at.Target) != nil, at)
}

// needsPlace reports whether an attach needs a place on its node: it has one if its volume is, or may be, published at
// the target. lost says that the driver no longer reports the volume there, dangling that an unowned publication is there.
// It is pure.
func needsPlace(believed Publication, lost, dangling bool, at Place) bool {
	switch {
	case lost:
		return believed.Belief != Published
	case dangling:
		return false
	case believed.Belief == Unknown:
		return !at.Noted
	}
	return believed.Target != at.Target || !believed.MayBePublished() || believed.NodeFull
}

// hold takes an entry out of its lane, or from those that wait for a slot: its node is full.
func (t *Table) hold(e *Entry) {
	t.withdraw(e)
	e.state = Blocked
	t.consider(e)
}

// joinLine has an entry wait for a place on its node.
func (t *Table) joinLine(e *Entry) {
	n := t.full[e.place.Node]
	i, _ := slices.BinarySearchFunc(n.line, e, inLine)
	n.line = slices.Insert(n.line, i, e)
	e.state, e.wait = Ready, Wait{Kind: WaitCapacity}
	t.moveLine(e.place.Node)
}

// inLine orders a line: who takes a place. Repairs go last, and else the longest asked for goes first.
func inLine(a, b *Entry) int {
	repairs := func(e *Entry) int {
		if e.lane == DriftLane {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(repairs(a), repairs(b)), a.since.Compare(b.since), cmp.Compare(a.Key.Name, b.Key.Name))
}

// moveLine has Run look whether an entry in the line of a full node may go.
func (t *Table) moveLine(name string) {
	if t.moved == nil {
		t.moved = map[string]bool{}
	}
	t.moved[name] = true
	t.signal()
}

// letGo lets the entries go for which there is a permit. It reports whether it has looked at a line.
func (t *Table) letGo(now time.Time) bool {
	if len(t.full) == 0 || len(t.moved) == 0 && now.Before(t.probe) {
		return false
	}
	for len(t.moved) > 0 {
		moved := t.moved
		t.moved = nil
		for name := range moved {
			t.letGoTo(name, now)
		}
	}
	if now.Before(t.probe) {
		return true
	}
	t.probe = now.Add(time.Hour)
	for name := range t.full {
		t.letGoTo(name, now)
	}
	if soonest := now.Add(probesEvery); t.probe.Before(soonest) {
		t.probe = soonest
	}
	return true
}

// letGoTo is letGo for one node. It forgets the node if it counts as full no more.
func (t *Table) letGoTo(name string, now time.Time) {
	n := t.full[name]
	if n == nil {
		return
	}
	var gone []*Entry
	for len(n.line) > 0 {
		p := n.full.offers(now, n.othersWait())
		if p == noPermit {
			break
		}
		e := n.first(p)
		n.full.take(p)
		t.withdraw(e)
		e.permit, e.state, e.waited = p, Blocked, true
		gone = append(gone, e)
	}
	for _, e := range slices.Backward(gone) { // each goes to the head of its lane
		if e.state == Blocked { // consider may have moved several of one volume
			t.consider(e)
		}
	}
	switch at := n.full.tryAt(n.othersWait()); {
	case len(n.line) == 0 && n.taken == 0 && n.full.isOver(now):
		n.full = nil
		delete(t.full, name)
		t.tidyNode(name, n)
	case n.full.tries == 0 && at.After(now) && at.Before(t.probe):
		t.probe = at
	}
}

// othersWait reports whether others than the only entry that was refused wait in the line.
func (n *node) othersWait() bool {
	return len(n.line) > 1 || len(n.line) == 1 && n.line[0].Key.Name != n.full.only
}

// first returns the entry of the line, which is not empty, that takes a permit. For a try, an entry that was refused
// since the last sign of a place goes behind the others: the driver may refuse that volume alone.
func (n *node) first(p permit) *Entry {
	if p == forPlace {
		return n.line[0]
	}
	refused := func(e *Entry) uint64 {
		switch {
		case e.Key.Name == n.full.only:
			return math.MaxUint64
		case e.refusedAt > n.full.fresh:
			return e.refusedAt
		}
		return 0
	}
	first := n.line[0]
	for _, e := range n.line {
		if refused(e) < refused(first) {
			first = e
		}
		if refused(first) == 0 {
			break
		}
	}
	return first
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
			t.moveLine(e.place.Node)
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
		n.full.refuse(e.Key.Name, e.permit, now, t.pause)
		if e.permit != noPermit {
			e.permit, e.refusedAt = noPermit, t.steps
		}
		t.moveLine(e.place.Node)
		return
	}
	full := newFullNode(e.Key.Name, now, int(n.detached-e.detached), t.pause)
	full.fresh = t.steps
	n.full, e.permit = &full, noPermit
	if t.full == nil {
		t.full = map[string]*node{}
	}
	t.full[e.place.Node] = n
	for _, other := range slices.Clone(n.waiting) {
		if t.isHeld(other) {
			t.hold(other)
		}
	}
	t.moveLine(e.place.Node)
}

// returnPermit gives back the permit of an entry that has not used it: the next in line takes it.
func (t *Table) returnPermit(e *Entry) {
	if e.permit == noPermit {
		return
	}
	if n := t.full[e.place.Node]; n != nil {
		n.full.giveBack(e.permit)
		t.moveLine(e.place.Node)
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
		t.moveLine(name)
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
		t.moveLine(node)
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
		v := FullNode{Node: name, Since: n.full.since, Line: make([]string, len(n.line))}
		for i, e := range n.line {
			v.Line[i] = e.Key.Name
		}
		if n.full.tries == 0 {
			v.NextTry = n.full.tryAt(n.othersWait())
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
	i, _ := slices.BinarySearchFunc(n.line, e, inLine)
	return i + 1
}
