package queue

import (
	"cmp"
	"slices"
	"time"
)

// sharing returns a place that is not Shared if this process has published the volume in a single-node mode.
func (q *Queue) sharing(key Key, p Place) Place {
	p.Shared = p.Shared && !q.beliefs.IsSingleNode(key, p.Target.VolumeHandle)
	return p
}

// move puts an item at a place, or makes it unplaced, and lets those go that waited for it where it was.
func (q *Queue) move(e *Item, p Place) {
	q.beliefs.Touched(e.place.Target)
	q.beliefs.Touched(p.Target)
	from, to := e.place.Target.VolumeHandle, p.Target.VolumeHandle
	e.place = p
	if to != "" && to != from {
		q.volumes[to] = append(q.volumes[to], e)
	}
	if from == "" || to == from {
		return
	}
	q.volumes[from] = slices.DeleteFunc(q.volumes[from], func(other *Item) bool { return other == e })
	if len(q.volumes[from]) == 0 {
		delete(q.volumes, from)
	}
	q.signalVolume(from)
}

// drop removes an item that is in no list.
func (q *Queue) drop(e *Item) {
	delete(q.items, e.Key)
	q.move(e, Place{})
}

// delay has an item that is in no list wait until it is due.
func (q *Queue) delay(e *Item, due time.Time) {
	e.State = Delayed
	q.alarms.set(&e.alarm, due)
	q.signalVolume(e.place.Target.VolumeHandle)
	q.signal()
}

// becomeDue lets an item that is in no list start as soon as Next allows.
func (q *Queue) becomeDue(e *Item) {
	q.steps++
	e.came, e.waited, e.pauses = q.steps, false, false
	q.park(e, Wait{Kind: WaitVolume})
	q.reconsider(e)
}

// park notes what an item that is in no list waits for.
func (q *Queue) park(e *Item, w Wait) { e.State, e.Wait = Parked, w }

// reconsider lets an item that is parked in no list start if Next allows it.
func (q *Queue) reconsider(e *Item) {
	if handle := e.place.Target.VolumeHandle; handle != "" {
		q.signalVolume(handle)
	} else {
		q.toLane(e)
	}
}

// signalVolume lets the items of a volume that may start now into their lanes, and takes the others out of their
// lanes. It does nothing for "".
func (q *Queue) signalVolume(handle string) {
	items := q.volumes[handle]
	if len(items) == 1 { // nearly always
		if e := items[0]; e.State == Parked && !e.isAdmitted() {
			q.toLane(e)
		}
	}
	if len(items) < 2 {
		return
	}
	var admitted []*Item
	for i, verdict := range Next(q.calls(items), q.limits.Parallel) {
		switch e := items[i]; {
		case e.State == Running || e.State == Delayed:
		case !verdict.Start:
			q.withdraw(e)
			e.waited = true
			w := Wait{Kind: verdict.Wait}
			if verdict.Wait == WaitDetach {
				first := items[verdict.After]
				w.Detach, w.Node = first.Key, first.place.Node
			}
			q.park(e, w)
		case !e.isAdmitted():
			admitted = append(admitted, e)
		}
	}
	slices.SortFunc(admitted, func(a, b *Item) int { return cmp.Compare(b.came, a.came) })
	for _, e := range admitted { // each goes to the head of its lane
		q.toLane(e)
	}
}

// calls returns items of one volume as Next needs them.
func (q *Queue) calls(items []*Item) []Call {
	calls := make([]Call, len(items))
	for i, e := range items {
		calls[i] = e.call(q.needsPlace(e))
	}
	return calls
}

// toLane puts an item that Next lets start into its lane, at the head if it was parked, or has it wait for a place on its node.
func (q *Queue) toLane(e *Item) {
	if q.needsPlace(e) {
		q.parkAt(q.nodes[e.place.Node], e, WaitCapacity)
		return
	}
	e.State, e.Wait = Ready, Wait{}
	waiting := &q.lanes.load[e.Lane].waiting
	if e.waited {
		e.link = waiting.PushFront(e)
	} else {
		e.link = waiting.PushBack(e)
	}
	q.signal()
}

// withdraw takes an item that does not run out of the list in which it waits. It loses its slot and its permit.
func (q *Queue) withdraw(e *Item) {
	switch {
	case e.State == Ready:
		q.lanes.leave(e)
	case e.State == Delayed:
		q.alarms.unset(&e.alarm)
	case e.isAdmitted():
		n := q.nodes[e.place.Node]
		n.parked = slices.DeleteFunc(n.parked, func(other *Item) bool { return other == e })
		q.signalNode(n)
	}
	q.leaveNode(e)
}

// leaveNode takes an item's slot and permit.
func (q *Queue) leaveNode(e *Item) {
	q.endPermit(e, (*fullNode).giveBack)
	q.freeSlot(e)
}
