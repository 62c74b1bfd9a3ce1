package queue

import (
	"container/list"
	"time"
)

const (
	// lendBelow is the length of a lane's recent calls below which it may borrow all idle workers of the other
	// lane but one. A worker cannot be taken back from a call. While calls are that short the other lane hardly
	// notices, and if they begin to hang it still has one worker.
	lendBelow = time.Second
	// A driver that is back gets an eighth of its workers at first, and twice as many with each step.
	rampSteps = 3
	rampStep  = time.Second
	// finalizerWorkers is how many PersistentVolume finalizers are removed at once.
	finalizerWorkers = 4
)

// laneLoad is the items of one lane.
type laneLoad struct {
	waiting list.List     // of *Item, the next first
	running list.List     // of *Item, the oldest first
	pace    time.Duration // moving average of the length of its calls; 0: no call has ended yet
}

// quick reports whether the lane's calls are short, calls in flight included.
func (l *laneLoad) quick(now time.Time) bool {
	if l.pace == 0 || l.pace >= lendBelow {
		return false
	}
	oldest := l.running.Front()
	return oldest == nil || now.Sub(oldest.Value.(*Item).began) < lendBelow
}

// addCall adds the length of a call to the pace, which forgets it within a few calls.
func (l *laneLoad) addCall(d time.Duration) {
	d = max(d, 1)
	if l.pace == 0 {
		l.pace = d
		return
	}
	l.pace += (d - l.pace) / 4
}

// lanes decides which item starts next. Attaches and detaches each have half of the workers, so that a burst of
// slow attaches does not keep detaches from starting, nor the reverse (external-attacher issue 761). Idle workers
// are lent to short calls only.
type lanes struct {
	load    [LaneCount]laneLoad
	workers int
	last    Lane // AttachLane or DetachLane, the one from which an item was started last

	open     bool      // the driver can be called
	shut     bool      // Shut was called in this term
	reopened time.Time // when Open was called after Shut; zero: never
}

// atOnce returns how many calls may be in flight now.
func (ls *lanes) atOnce(now time.Time) int {
	steps := int(now.Sub(ls.reopened) / rampStep)
	if ls.reopened.IsZero() || steps >= rampSteps {
		return ls.workers
	}
	return max(1, ls.workers>>(rampSteps-steps))
}

// nextStep returns how long it takes until more calls may be in flight, 0 if the limit does not grow.
func (ls *lanes) nextStep(now time.Time) time.Duration {
	elapsed := now.Sub(ls.reopened)
	if ls.reopened.IsZero() || !ls.open || elapsed >= rampSteps*rampStep {
		return 0
	}
	return rampStep - elapsed%rampStep
}

// mayStart reports whether a lane may start an item now. A lost volume is attached again only while no other attach or detach
// waits, and with at most a quarter of the workers: repairs that hang must leave most of those that attaches have.
func (ls *lanes) mayStart(l Lane, now time.Time) bool {
	workers, running := ls.atOnce(now), ls.load[l].running.Len()
	switch {
	case l == FinalizerLane:
		return running < finalizerWorkers
	case !ls.open || ls.inFlight() >= workers:
		return false
	case l == DriftLane:
		return ls.load[AttachLane].waiting.Len() == 0 && ls.load[DetachLane].waiting.Len() == 0 &&
			ls.busy(AttachLane) < max(1, workers/2) && running < max(1, workers/4)
	}
	return ls.busy(l) < ls.most(l, now)
}

// pick returns the item to start now, nil for none. It does not change its lane. Of attaches and detaches, those go first that
// have fewer workers; the lanes take turns if both have the same number.
func (ls *lanes) pick(now time.Time) *Item {
	first := 1 - ls.last
	if a, d := ls.busy(AttachLane), ls.busy(DetachLane); a < d {
		first = AttachLane
	} else if d < a {
		first = DetachLane
	}
	for _, l := range [...]Lane{FinalizerLane, first, 1 - first, DriftLane} {
		if next := ls.load[l].waiting.Front(); next != nil && ls.mayStart(l, now) {
			return next.Value.(*Item)
		}
	}
	return nil
}

// busy returns how many workers AttachLane or DetachLane has. Repairs count as attaches.
func (ls *lanes) busy(l Lane) int {
	n := ls.load[l].running.Len()
	if l == AttachLane {
		n += ls.load[DriftLane].running.Len()
	}
	return n
}

// inFlight returns how many workers have an item.
func (ls *lanes) inFlight() int {
	return ls.load[AttachLane].running.Len() + ls.load[DetachLane].running.Len() + ls.load[DriftLane].running.Len()
}

// leave takes an item out of its lane.
func (ls *lanes) leave(e *Item) {
	ls.load[e.Lane].waiting.Remove(e.link)
	e.link = nil
}

// start notes that a worker has an item that was in its lane.
func (ls *lanes) start(e *Item) {
	ls.leave(e)
	e.link = ls.load[e.Lane].running.PushBack(e)
	if e.Lane == AttachLane || e.Lane == DetachLane {
		ls.last = e.Lane
	}
}

// end notes that no worker has an item any more.
func (ls *lanes) end(e *Item) {
	ls.load[e.Lane].running.Remove(e.link)
	e.link = nil
}

// most returns how many workers AttachLane or DetachLane may have now, with those that the other lane
// lends it.
func (ls *lanes) most(l Lane, now time.Time) int {
	mine, other := &ls.load[l], &ls.load[1-l]
	workers := ls.atOnce(now)
	kept := workers / 2 // for the other lane
	if other.waiting.Len() == 0 && mine.quick(now) {
		kept = min(kept, 1)
	}
	return workers - max(kept, ls.busy(1-l))
}
