package queue

import (
	"slices"
	"time"
)

const (
	// lendBelow is the length of a lane's last call below which it may borrow all idle workers of the other
	// lane but one. A worker cannot be taken back from a call. While calls are that short the other lane hardly
	// notices, and if they begin to hang it still has one worker.
	lendBelow = time.Second
	// A driver that is back gets an eighth of its workers at first, and twice as many with each step.
	rampSteps = 3
	rampStep  = time.Second
	// finalizerWorkers is how many PersistentVolume finalizers are removed at once.
	finalizerWorkers = 4
)

// laneLoad is the items of one lane. Attaches and detaches each have half of the workers, so that a burst of slow attaches does
// not keep detaches from starting, nor the reverse (external-attacher issue 761). Idle workers are lent to short calls only.
type laneLoad struct {
	waiting []*Item       // by came: the longest due first
	running []*Item       // the oldest first
	pace    time.Duration // of its last run with a call; 0: there was none
}

// quick reports whether the lane's calls are short, calls in flight included.
func (l *laneLoad) quick(now time.Time) bool {
	return l.pace > 0 && l.pace < lendBelow && (len(l.running) == 0 || now.Sub(l.running[0].began) < lendBelow)
}

// atOnce returns how many calls may be in flight now.
func (q *Queue) atOnce(now time.Time) int {
	steps := int(now.Sub(q.reopened) / rampStep)
	if q.reopened.IsZero() || steps >= rampSteps {
		return q.limits.Workers
	}
	return max(1, q.limits.Workers>>(rampSteps-steps))
}

// mayStart reports whether a lane may start an item now. A lost volume is attached again only while no other attach or detach
// waits: repairs that hang must leave most of the workers that attaches have.
func (q *Queue) mayStart(l Lane, now time.Time) bool {
	workers := q.atOnce(now)
	switch {
	case l != FinalizerLane && (!q.open || q.inFlight() >= workers):
		return false
	case l == DriftLane && (len(q.load[AttachLane].waiting)+len(q.load[DetachLane].waiting) > 0 || q.busy(AttachLane) >= max(1, workers/2)):
		return false
	}
	return q.busy(l) < q.most(l, now)
}

// pick returns the item to start now, nil for none. It does not change its lane. Of attaches and detaches, those go first that
// have fewer workers; the lanes take turns if both have the same number.
func (q *Queue) pick(now time.Time) *Item {
	first := 1 - q.last
	if q.busy(q.last) < q.busy(first) {
		first = q.last
	}
	for _, l := range [...]Lane{FinalizerLane, first, 1 - first, DriftLane} {
		if waiting := q.load[l].waiting; len(waiting) > 0 && q.mayStart(l, now) {
			return waiting[0]
		}
	}
	return nil
}

// busy returns how many workers a lane has. Repairs count as attaches too.
func (q *Queue) busy(l Lane) int {
	if l == AttachLane {
		return q.inFlight() - len(q.load[DetachLane].running)
	}
	return len(q.load[l].running)
}

// inFlight returns how many workers have an item.
func (q *Queue) inFlight() int {
	return len(q.load[AttachLane].running) + len(q.load[DetachLane].running) + len(q.load[DriftLane].running)
}

// most returns how many workers a lane may have now, with those that the other one of AttachLane and DetachLane lends it.
func (q *Queue) most(l Lane, now time.Time) int {
	workers := q.atOnce(now)
	switch l {
	case FinalizerLane:
		return finalizerWorkers
	case DriftLane:
		return max(1, workers/4)
	}
	kept := workers / 2 // for the other lane
	if len(q.load[1-l].waiting) == 0 && q.load[l].quick(now) {
		kept = min(kept, 1)
	}
	return max(0, workers-max(kept, q.busy(1-l)))
}

// insert adds an item to a list in an order.
func insert(list []*Item, e *Item, order func(a, b *Item) int) []*Item {
	i, _ := slices.BinarySearchFunc(list, e, order)
	return slices.Insert(list, i, e)
}

// remove removes an item from a list, if it is there.
func remove(list []*Item, e *Item) []*Item {
	if i := slices.Index(list, e); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}
