package queue

import (
	"slices"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// Add has the item of a key run at once: it ends a delay. An item that is running runs again
// afterwards, unless its worker calls ClearChanged. Between terms Add does nothing.
func (q *Queue) Add(key Key, l Lane, d Destination) {
	defer q.lock()()
	q.AddLocked(key, l, d)
}

// AddLocked is Add.
func (q *Queue) AddLocked(key Key, l Lane, d Destination) { q.add(key, l, d, false) }

// AddAndRetry is Add and RetryNow, because the driver may answer otherwise than before: its connection or attachRequired is new. But
// it does not end the delay of a suspect (Retries).
func (q *Queue) AddAndRetry(key Key, l Lane, d Destination) {
	defer q.lock()()
	q.add(key, l, d, true)
}

func (q *Queue) add(key Key, l Lane, d Destination, retry bool) {
	if q.items == nil {
		return // the next term adds items for all work that the caches show
	}
	now, e := time.Now(), q.items[key]
	if e == nil {
		e = &Item{Key: key, Progress: Progress{Lane: l, Required: now}}
		if s := q.suspects[key]; s != nil {
			e.Retries, e.Tries, e.Due = s.Retries, s.Tries, s.Due
			e.Retries.ReadAnew = "" // in that term
			delete(q.suspects, key)
		}
		q.items[key] = e
	}
	e.repeats = 0
	d.Shared = q.isShared(key, d)
	switch suspect := retry && e.Lane == l && e.State != Running && e.Retries.Suspect(); {
	case e.State == Running:
		e.again, e.retry = true, e.retry || retry
	case suspect || e.State == Delayed || e.Lane != l || e.dest != d:
		wait := max(e.Due.Sub(now), e.Retries.AfterReconnect)
		q.withdraw(e)
		e.Lane = l
		q.move(e, d)
		if suspect {
			q.delay(e, now.Add(wait))
		} else {
			q.becomeDue(e)
		}
	}
}

// isShared reports whether a destination is Shared, and this process has not published the volume in a single-node mode.
func (q *Queue) isShared(key Key, d Destination) bool {
	return d.Shared && !q.beliefs.IsSingleNode(key, d.Target.VolumeHandle)
}

// RetryNow ends the delay of an item, or the delay that it would get at the end of its run. It is called when an
// object has changed that may help the item.
func (q *Queue) RetryNow(key Key) {
	defer q.lock()()
	q.retryNow(q.items[key])
}

// RetryAfter is RetryNow for all items whose last try failed for a reason.
func (q *Queue) RetryAfter(v diagnosis.Verdict) {
	defer q.lock()()
	for _, e := range q.items {
		if e.Tries > 0 && e.Cause.Verdict == v {
			q.retryNow(e)
		}
	}
}

func (q *Queue) retryNow(e *Item) {
	switch {
	case e == nil:
	case e.State == Running:
		e.retry, e.repeats = true, 0
	case e.State == Delayed:
		e.repeats = 0
		q.becomeDue(e)
	}
}

// DropLocked removes the item of a key whose work is void, unless a worker has it. Then DropLocked reports false.
func (q *Queue) DropLocked(key Key) bool {
	if e := q.items[key]; e != nil {
		if e.State == Running {
			return false
		}
		q.withdraw(e)
		q.drop(e)
	}
	return true
}

// drop removes an item that is in no list.
func (q *Queue) drop(e *Item) {
	delete(q.items, e.Key)
	q.move(e, Destination{})
}

// IsAtLocked reports whether there is an item at a target.
func (q *Queue) IsAtLocked(target attach.Target) bool {
	return slices.ContainsFunc(q.volumes[target.VolumeHandle], func(e *Item) bool { return e.dest.Target == target })
}

// End is how a run of an item has ended.
type End struct {
	finished bool // nothing is left to do
	lane     Lane // else: of the next run
	pause    time.Duration
	waited   bool // other calls for the volume go on waiting for it
}

// Finished ends an item, unless Add was called during its run.
var Finished = End{finished: true}

// Requeue has an item run again in a lane, at once. If it runs once more for the same reason, and nobody has added the item
// meanwhile, it pauses; others that wait for it go on waiting.
func Requeue(l Lane) End { return End{lane: l} }

// BackOff has an item run again in a lane after a pause: its try has failed. Others no longer wait for it. Without a pause it
// is Requeue.
func BackOff(l Lane, pause time.Duration) End { return End{lane: l, pause: pause} }

// RequeueAfter is BackOff for an item that could not be tried, and has not failed: others that wait for it go on waiting.
func RequeueAfter(l Lane, pause time.Duration) End { return End{lane: l, pause: pause, waited: true} }

// MayCall reports whether a running item may call the driver for a destination, which may differ from the one
// that it was started for. If not, the item is blocked and runs again later: its worker must not use it
// any more.
func (q *Queue) MayCall(e *Item, d Destination) bool {
	defer q.lock()()
	d.Shared = q.isShared(e.Key, d)
	e.called = true
	moved := e.dest.Target != d.Target || e.dest.Shared != d.Shared
	if moved {
		d.Node = e.dest.Node // it has a slot of that node
		d.Noted = e.dest.Noted && d.Target == e.dest.Target
		q.block(e, Wait{Kind: WaitVolume})
		q.move(e, d)
	}
	items := q.volumes[d.Target.VolumeHandle]
	goesOn := !q.needsCapacity(e) && detachFirst(items, e) == nil // no other one that came later can block it
	if goesOn && moved {
		goesOn = next(items, q.limits.Parallel, q.needsCapacity)[slices.Index(items, e)].Kind == WaitWorker
	}
	if goesOn {
		q.steps++
		e.State, e.served = Running, q.steps
	} else {
		q.free(e)
		q.block(e, Wait{Kind: WaitVolume})
	}
	if moved || !goesOn {
		q.signalVolume(d.Target.VolumeHandle)
	}
	return goesOn
}

// free notes that no worker has an item any more.
func (q *Queue) free(e *Item) {
	l := &q.load[e.Lane]
	l.running = remove(l.running, e)
	q.leaveNode(e)
	q.signal()
}

// ClearChanged reports whether Add was called for a running item since its run began, or since the last call of
// ClearChanged. The caller takes that change into account, so it causes no other run.
func (q *Queue) ClearChanged(e *Item) (changed bool) {
	defer q.lock()()
	changed, e.again = e.again, false
	return changed
}

// SetCall notes the call in flight for the item of a key, or that it has returned: Flight{}.
func (q *Queue) SetCall(key Key, f Flight) {
	defer q.lock()()
	if e := q.items[key]; e != nil {
		e.Call = f
	}
}

// Failed notes a try of an item that has failed, and returns how many there were in a row. Attach and detach do not share a
// count: the first detach after many failed attaches must not wait.
func (q *Queue) Failed(e *Item, op attach.Operation, text string, cause diagnosis.Cause) int {
	defer q.lock()()
	if r := &e.Retries; r.Operation != op || e.Tries == 0 {
		r.Operation, r.Since, r.NodeFull, e.Tries = op, time.Now(), 0, 0
	}
	e.Tries, e.Error, e.Cause = e.Tries+1, text, cause
	return e.Tries
}

// Succeeded notes that the work of an item has succeeded.
func (q *Queue) Succeeded(e *Item) {
	defer q.lock()()
	e.forgive()
}

// End ends the run of an item.
func (q *Queue) End(e *Item, end End) {
	defer q.lock()()
	if q.beliefs.Ended(e.Key) {
		e.forgive()
	}
	now := time.Now()
	if e.called {
		q.load[e.Lane].pace = max(1, now.Sub(e.began))
	}
	q.free(e)
	if !end.finished && end.lane != e.Lane {
		e.Lane, e.Required = end.lane, now // it is other work
	}
	if e.retry && e.Retries.Suspect() {
		e.again, e.retry = false, false // a change of its object is in the delay
	}
	again, pause := e.again || e.retry && !end.finished, end.pause
	if e.pauses = end.waited; pause > 0 && !e.pauses {
		q.steps++
		e.tried = q.steps
	}
	if e.repeats++; pause > 0 || again || end.finished {
		e.repeats = 0
	} else if e.repeats > 1 {
		e.pauses, pause = true, min(repeatPauseMax, repeatPause<<min(e.repeats-2, 10))
	}
	switch {
	case again || pause == 0 && !end.finished:
		q.becomeDue(e)
	case end.finished:
		q.drop(e)
	default:
		q.delay(e, now.Add(pause))
	}
}
