package queue

import (
	"slices"
	"time"
)

// End is how a run of an item has ended.
type End struct {
	kind  endKind
	lane  Lane // of the next run
	pause time.Duration
}

type endKind int8

const (
	finished  endKind = iota // nothing is left to do
	backsOff                 // it runs again after a pause, at once if that is 0
	postponed                // so, and other calls for the volume go on waiting for it
	waits                    // it runs again when its node has a place
)

// Finished ends an item, unless it was asked for during its run.
var Finished = End{kind: finished}

// Again has an item run again in a lane, at once. If it runs once more for the same reason, and nobody has asked for the item
// meanwhile, it pauses; others that wait for it go on waiting.
func Again(l Lane) End { return End{kind: backsOff, lane: l} }

// BackOff has an item run again in a lane after a pause: its try has failed. Others no longer wait for it. Without a pause it
// is Again.
func BackOff(l Lane, pause time.Duration) End { return End{backsOff, l, pause} }

// Postpone is BackOff for an item that could not be tried, and has not failed: others that wait for it go on waiting.
func Postpone(l Lane, pause time.Duration) End { return End{postponed, l, pause} }

// WaitForPlace has an item wait in the line of its node, which is full.
func WaitForPlace(l Lane) End { return End{kind: waits, lane: l} }

// MayCall reports whether a running item may call the driver at a place, which may differ from the place
// that it was started for. If not, the item is parked and runs again later: its worker must not use it
// any more.
func (q *Queue) MayCall(e *Item, p Place) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	p = q.sharing(e.Key, p)
	e.called = true
	moved := e.place.Target != p.Target || e.place.Shared != p.Shared
	if moved {
		p.Node = e.place.Node // it has a slot of that node
		p.Noted = e.place.Noted && p.Target == e.place.Target
		q.steps++
		e.came = q.steps
		q.park(e, Wait{Kind: WaitVolume})
		q.move(e, p)
	}
	goesOn := q.mayGoOn(e, moved) && !q.needsPlace(e)
	if goesOn {
		q.steps++
		e.State, e.served = Running, q.steps
	} else {
		q.lanes.end(e)
		q.park(e, Wait{Kind: WaitVolume})
		e.waited = true
		q.leaveNode(e)
		q.signal()
	}
	if moved || !goesOn {
		q.signalVolume(p.Target.VolumeHandle)
	}
	return goesOn
}

// mayGoOn reports whether the other items of its volume let a running item call the driver now. If it has not moved, only a
// later detach that goes first can park it.
func (q *Queue) mayGoOn(e *Item, moved bool) bool {
	items := q.volumes[e.place.Target.VolumeHandle]
	switch {
	case len(items) < 2:
		return true
	case moved:
		return Next(q.calls(items), q.limits.Parallel)[slices.Index(items, e)].Start
	case e.Lane == DetachLane || e.place.Shared:
		return true
	}
	calls := q.calls(items)
	return detachFirst(calls, detachesThatGoFirst(calls), slices.Index(items, e)) < 0
}

// ClearChanged reports whether a running item was asked for since its run began, or since the last call of
// ClearChanged. The caller takes that change into account, so it causes no other run.
func (q *Queue) ClearChanged(e *Item) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	again := e.again
	e.again = false
	return again
}

// CallBegins notes that a call for the item of a key is in flight from now on, until CallEnds.
func (q *Queue) CallBegins(key Key, method string) {
	q.setCall(key, Flight{method, time.Now(), key.Name})
}

// CallEnds notes that the call for the item of a key has returned.
func (q *Queue) CallEnds(key Key) { q.setCall(key, Flight{}) }

func (q *Queue) setCall(key Key, f Flight) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e := q.items[key]; e != nil {
		e.Call = f
	}
}

// End ends the run of an item.
func (q *Queue) End(e *Item, end End) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.beliefs.Ended(e.Key) {
		e.forgive()
	}
	now := time.Now()
	q.lanes.end(e)
	if e.called {
		q.lanes.load[e.Lane].addCall(now.Sub(e.began))
	}
	q.leaveNode(e)
	if end.kind != finished && end.lane != e.Lane {
		e.Lane, e.Asked = end.lane, now // it is other work
	}
	if e.renewed && e.Retries.Suspect() {
		e.again = false // a change of its object is in the delay
	} else {
		e.retryNow = e.retryNow || e.renewed
	}
	again, pause := e.again || e.retryNow && end.kind != finished || end.kind == waits, end.pause
	if e.pauses = end.kind == postponed; pause > 0 && !e.pauses {
		q.steps++
		e.tried = q.steps
	}
	if pause == 0 && !again && end.kind != finished {
		pause = e.repeat()
	} else {
		e.repeats = 0
	}
	switch {
	case again || pause == 0 && end.kind != finished:
		q.becomeDue(e)
	case end.kind != finished:
		q.delay(e, now.Add(pause))
	default:
		q.drop(e)
	}
	q.signal()
}
