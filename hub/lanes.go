package hub

import (
	"container/list"
	"time"
)

const (
	// lendBelow is how short the calls of a lane must be of late for it to borrow the
	// workers that the other lane leaves idle, all but one. A worker cannot be taken
	// back from a call: as long as calls are that short, the other lane hardly notices,
	// and if they begin to hang it still has the one.
	lendBelow = time.Second
	// A driver that has come back gets an eighth of its workers at first, and twice as
	// many with each step.
	rampSteps = 3
	rampStep  = time.Second
	// releaseWorkers is how many PersistentVolume finalizers are removed at once.
	releaseWorkers = 4
)

// laneLoad is what one lane has to do and does.
type laneLoad struct {
	waiting list.List     // of *item, the next first
	running list.List     // of *item, the oldest first
	pace    time.Duration // of its calls of late, 0: none has ended yet
}

// quick says whether the lane's calls are short, those in flight included.
func (l *laneLoad) quick(now time.Time) bool {
	if l.pace == 0 || l.pace >= lendBelow {
		return false
	}
	oldest := l.running.Front()
	return oldest == nil || now.Sub(oldest.Value.(*item).began) < lendBelow
}

// ended takes the length of a call into the pace: a moving average that forgets
// within a few calls.
func (l *laneLoad) ended(d time.Duration) {
	d = max(d, 1)
	if l.pace == 0 {
		l.pace = d
		return
	}
	l.pace += (d - l.pace) / 4
}

// lanes decides whose turn it is. Attaches and detaches each have half of the
// workers: a burst of slow calls on one side does not keep the other from starting
// (external-attacher issue 761). What is idle is lent to short calls only.
type lanes struct {
	load    [laneCount]laneLoad
	workers int
	last    lane // that of attach and detach which was served last

	open     bool      // the driver can be called
	shut     bool      // it could not be called once
	reopened time.Time // when it could be called again
}

// atOnce is how many calls may be in flight now.
func (ls *lanes) atOnce(now time.Time) int {
	steps := int(now.Sub(ls.reopened) / rampStep)
	if ls.reopened.IsZero() || steps >= rampSteps {
		return ls.workers
	}
	return max(1, ls.workers>>(rampSteps-steps))
}

// nextStep returns how long it takes until more calls may be in flight, 0 if all may.
func (ls *lanes) nextStep(now time.Time) time.Duration {
	elapsed := now.Sub(ls.reopened)
	if ls.reopened.IsZero() || !ls.open || elapsed >= rampSteps*rampStep {
		return 0
	}
	return rampStep - elapsed%rampStep
}

// next returns the item to start now, nil for none. It does not move it.
func (ls *lanes) next(now time.Time) *item {
	release := &ls.load[releaseLane]
	if release.waiting.Len() > 0 && release.running.Len() < releaseWorkers {
		return release.waiting.Front().Value.(*item)
	}
	if !ls.open {
		return nil
	}
	attach, detach := ls.mayStart(attachLane, now), ls.mayStart(detachLane, now)
	switch {
	case attach && detach:
		return ls.head(ls.fairer())
	case attach:
		return ls.head(attachLane)
	case detach:
		return ls.head(detachLane)
	case ls.mayRepair(now):
		return ls.head(driftLane)
	}
	return nil
}

// mayRepair says whether a volume that was lost may be attached again: only while
// nobody waits, and never with more than half of the workers.
func (ls *lanes) mayRepair(now time.Time) bool {
	workers := ls.atOnce(now)
	return ls.load[driftLane].waiting.Len() > 0 &&
		ls.load[attachLane].waiting.Len() == 0 && ls.load[detachLane].waiting.Len() == 0 &&
		ls.inFlight() < workers && ls.busy(attachLane) < max(1, workers/2)
}

// busy is how many workers an attach or detach lane has. Repairs are attaches.
func (ls *lanes) busy(l lane) int {
	n := ls.load[l].running.Len()
	if l == attachLane {
		n += ls.load[driftLane].running.Len()
	}
	return n
}

// inFlight is how many workers have something to do.
func (ls *lanes) inFlight() int {
	return ls.load[attachLane].running.Len() + ls.load[detachLane].running.Len() + ls.load[driftLane].running.Len()
}

func (ls *lanes) head(l lane) *item { return ls.load[l].waiting.Front().Value.(*item) }

// mayStart says whether a lane may have one more worker.
func (ls *lanes) mayStart(l lane, now time.Time) bool {
	return ls.load[l].waiting.Len() > 0 && ls.inFlight() < ls.atOnce(now) && ls.busy(l) < ls.most(l, now)
}

// most is how many workers an attach or detach lane may have now, those the other one
// leaves idle included as far as they are lent.
func (ls *lanes) most(l lane, now time.Time) int {
	mine, other := &ls.load[l], &ls.load[1-l]
	workers := ls.atOnce(now)
	kept := workers / 2 // for the other lane
	if other.waiting.Len() == 0 && mine.quick(now) {
		kept = min(kept, 1) // what is lent may hang, and cannot be taken back
	}
	return workers - max(kept, ls.busy(1-l))
}

// fairer returns the lane with fewer workers, in turn if they have the same.
func (ls *lanes) fairer() lane {
	a, d := ls.busy(attachLane), ls.busy(detachLane)
	switch {
	case a < d:
		return attachLane
	case d < a:
		return detachLane
	}
	return 1 - ls.last
}
