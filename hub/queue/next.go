package queue

import (
	"cmp"
	"slices"
	"time"
)

// next decides which items of one volume may start now, and returns for each of the others that are due what it waits for. It is
// pure. parallel is the setting parallelMultiNode; isHeld reports whether an item that is due waits for a place on a full node.
// The rules:
//
//   - One call for a volume at a time (CSI spec). Calls for a multi-node volume at different node
//     IDs may be in flight together, with parallel.
//   - A publish of a single-node volume does not start while an unpublish elsewhere is due, in
//     flight or paused. No publish waits for an unpublish that backs off, nor for one of which a try
//     has failed since the publish became due: the driver decides then.
//   - Detaches go first, then the longest waiting. A detach that has started, or of which a try has
//     failed, since another item became due does not go before that item once more.
//   - Nothing overtakes an item that needs the volume for itself.
//   - An item that is held may start by these rules or not, after all others. It makes no difference to others.
func next(items []*Item, parallel bool, isHeld func(*Item) bool) []Wait {
	var due, held []int
	var detaches []*Item
	alone, nodes := false, map[string]bool{} // one that starts or runs needs the volume for itself; their node IDs
	start := func(e *Item) {
		alone = alone || !e.dest.Shared || !parallel
		nodes[e.dest.Target.NodeID] = true
	}
	for i, e := range items {
		if e.Lane == DetachLane {
			detaches = append(detaches, e)
		}
		switch {
		case e.State == Running:
			start(e)
		case e.State == Blocked && isHeld(e): // in its lane, it counts until it is blocked again
			held = append(held, i)
		case e.State != Delayed:
			due = append(due, i)
		}
	}
	slices.SortFunc(due, func(a, b int) int {
		return cmp.Or(cmp.Compare(items[a].waitsSince(), items[b].waitsSince()), cmp.Compare(items[a].came, items[b].came))
	})
	waits, overtaken := make([]Wait, len(items)), false
	for n, i := range append(due, held...) {
		e, counts := items[i], n < len(due)
		switch detach := detachFirst(detaches, e); {
		case detach != nil:
			waits[i] = Wait{Kind: WaitDetach, Detach: detach.Key, Node: detach.dest.Node}
		case overtaken || len(nodes) > 0 && (alone || !e.dest.Shared || nodes[e.dest.Target.NodeID]):
			waits[i].Kind = WaitVolume
			overtaken = overtaken || counts && !e.dest.Shared // any other one that starts now
		case counts:
			start(e)
		}
	}
	return waits
}

// waitsSince returns the step since which an item that is due waits for its volume; the lowest goes first. A detach that has
// neither started nor failed has waited from the beginning.
func (e *Item) waitsSince() uint64 {
	if e.Lane == DetachLane {
		return max(e.served, e.tried)
	}
	return e.came
}

// detachFirst returns a detach that goes before an item of its volume, nil if none does. The detach of a dangling publication at
// the target of a publish does not: the publish takes that publication over. Nor does a detach that has had its try: of two that
// time out, one is always due while the other one backs off.
func detachFirst(items []*Item, e *Item) *Item {
	if e.Lane == DetachLane || e.dest.Shared {
		return nil
	}
	for _, d := range items {
		backsOff := d.State == Delayed && !d.pauses
		tookOver := d.Key.Kind == DanglingKind && d.dest.Target == e.dest.Target
		tried := d.State != Running && d.tried > e.came
		if d.Lane == DetachLane && !backsOff && !tookOver && !tried {
			return d
		}
	}
	return nil
}

// signalVolume lets the items of a volume that may start now into their lanes, and takes the others out of their
// lanes.
func (q *Queue) signalVolume(handle string) {
	items := q.volumes[handle]
	for i, wait := range next(items, q.limits.Parallel, q.needsCapacity) {
		switch e := items[i]; {
		case e.State == Running || e.State == Delayed:
		case wait.Kind != WaitWorker:
			q.withdraw(e)
			e.Wait = wait
		case !e.isAdmitted():
			q.toLane(e)
		}
	}
}

// move changes the destination of an item, and lets those go that waited for it at the last one.
func (q *Queue) move(e *Item, d Destination) {
	q.beliefs.Touched(e.dest.Target)
	q.beliefs.Touched(d.Target)
	from, to := e.dest.Target.VolumeHandle, d.Target.VolumeHandle
	e.dest = d
	if to == from {
		return
	}
	if to != "" {
		q.volumes[to] = append(q.volumes[to], e)
	}
	if q.volumes[from] = remove(q.volumes[from], e); len(q.volumes[from]) == 0 {
		delete(q.volumes, from)
	}
	q.signalVolume(from)
}

// delay has an item that is in no list wait until it is due.
func (q *Queue) delay(e *Item, due time.Time) {
	e.State, e.Due = Delayed, due
	q.setAlarm(alarm{at: due, item: e})
	q.signalVolume(e.dest.Target.VolumeHandle)
}

// becomeDue lets an item that is in no list start as soon as next allows.
func (q *Queue) becomeDue(e *Item) {
	q.steps++
	e.came, e.pauses = q.steps, false
	q.block(e, Wait{Kind: WaitVolume})
	q.reconsider(e)
}

// reconsider lets an item that is blocked in no list start if next allows it.
func (q *Queue) reconsider(e *Item) {
	if handle := e.dest.Target.VolumeHandle; handle != "" {
		q.signalVolume(handle)
	} else {
		q.toLane(e)
	}
}

// block notes what an item that is in no list waits for.
func (q *Queue) block(e *Item, w Wait) { e.State, e.Wait, e.Due = Blocked, w, time.Time{} }

// toLane puts an item that next lets start into its lane, or has it wait for a place on its node.
func (q *Queue) toLane(e *Item) {
	if q.needsCapacity(e) {
		q.blockAt(q.nodeOf(e), e)
		return
	}
	e.State, e.Wait = Ready, Wait{}
	l := &q.load[e.Lane]
	l.waiting = insert(l.waiting, e, func(a, b *Item) int { return cmp.Compare(a.came, b.came) })
	q.signal()
}

// withdraw takes an item that does not run out of the list in which it waits. It loses its slot and its permit.
func (q *Queue) withdraw(e *Item) {
	switch {
	case e.State == Ready:
		l := &q.load[e.Lane]
		l.waiting = remove(l.waiting, e)
	case e.isAdmitted():
		n := q.nodes[e.dest.Node]
		n.blocked = remove(n.blocked, e)
		q.signalNode(n)
	}
	q.leaveNode(e)
	q.block(e, Wait{Kind: WaitVolume})
}
