package volume

import (
	"container/list"
	"time"
)

const (
	// lendBelow is how short the calls of a Lane must be of late for it to borrow the
	// workers that the other Lane leaves idle, all but one. A worker cannot be taken
	// back from a call: as long as calls are that short, the other Lane hardly notices,
	// and if they begin to hang it still has the one.
	lendBelow = time.Second
	// A driver that has come back gets an eighth of its workers at first, and twice as
	// many with each step.
	rampSteps = 3
	rampStep  = time.Second
	// releaseWorkers is how many PersistentVolume finalizers are removed at once.
	releaseWorkers = 4
)

// laneLoad is what one Lane has to do and does.
type laneLoad struct {
	waiting list.List     // of *Entry, the next first
	running list.List     // of *Entry, the oldest first
	pace    time.Duration // of its calls of late, 0: none has ended yet
}

// quick says whether the lane's calls are short, those in flight included.
func (l *laneLoad) quick(now time.Time) bool {
	if l.pace == 0 || l.pace >= lendBelow {
		return false
	}
	oldest := l.running.Front()
	return oldest == nil || now.Sub(oldest.Value.(*Entry).began) < lendBelow
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
	load    [LaneCount]laneLoad
	workers int
	last    Lane // that of attach and detach which was served last

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

// pick returns the entry to start now, nil for none. It does not move it.
func (ls *lanes) pick(now time.Time) *Entry {
	release := &ls.load[ReleaseLane]
	if release.waiting.Len() > 0 && release.running.Len() < releaseWorkers {
		return release.waiting.Front().Value.(*Entry)
	}
	if !ls.open {
		return nil
	}
	attach, detach := ls.mayStart(AttachLane, now), ls.mayStart(DetachLane, now)
	switch {
	case attach && detach:
		return ls.head(ls.fairer())
	case attach:
		return ls.head(AttachLane)
	case detach:
		return ls.head(DetachLane)
	case ls.mayRepair(now):
		return ls.head(DriftLane)
	}
	return nil
}

// mayRepair says whether a volume that was lost may be attached again: only while
// nobody waits, and never with more than half of the workers.
func (ls *lanes) mayRepair(now time.Time) bool {
	workers := ls.atOnce(now)
	return ls.load[DriftLane].waiting.Len() > 0 &&
		ls.load[AttachLane].waiting.Len() == 0 && ls.load[DetachLane].waiting.Len() == 0 &&
		ls.inFlight() < workers && ls.busy(AttachLane) < max(1, workers/2)
}

// busy is how many workers an attach or detach Lane has. Repairs are attaches.
func (ls *lanes) busy(l Lane) int {
	n := ls.load[l].running.Len()
	if l == AttachLane {
		n += ls.load[DriftLane].running.Len()
	}
	return n
}

// inFlight is how many workers have something to do.
func (ls *lanes) inFlight() int {
	return ls.load[AttachLane].running.Len() + ls.load[DetachLane].running.Len() + ls.load[DriftLane].running.Len()
}

func (ls *lanes) head(l Lane) *Entry { return ls.load[l].waiting.Front().Value.(*Entry) }

// mayStart says whether a Lane may have one more worker.
func (ls *lanes) mayStart(l Lane, now time.Time) bool {
	return ls.load[l].waiting.Len() > 0 && ls.inFlight() < ls.atOnce(now) && ls.busy(l) < ls.most(l, now)
}

// most is how many workers an attach or detach Lane may have now, those the other one
// leaves idle included as far as they are lent.
func (ls *lanes) most(l Lane, now time.Time) int {
	mine, other := &ls.load[l], &ls.load[1-l]
	workers := ls.atOnce(now)
	kept := workers / 2 // for the other lane
	if other.waiting.Len() == 0 && mine.quick(now) {
		kept = min(kept, 1) // what is lent may hang, and cannot be taken back
	}
	return workers - max(kept, ls.busy(1-l))
}

// fairer returns the Lane with fewer workers, in turn if they have the same.
func (ls *lanes) fairer() Lane {
	a, d := ls.busy(AttachLane), ls.busy(DetachLane)
	switch {
	case a < d:
		return AttachLane
	case d < a:
		return DetachLane
	}
	return 1 - ls.last
}
