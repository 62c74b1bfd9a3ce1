package hub

import (
	"container/heap"
	"context"
	"slices"
	"sync"
	"time"
)

// queue holds the work of one driver and hands it to as many workers as the
// driver may have: one item per key, in lanes, later where it backs off, and one
// at a time per volume. Nothing in it blocks but run.
type queue struct {
	wake chan struct{} // something may be to start

	mu      sync.Mutex
	items   map[workKey]*item
	lanes   lanes
	delayed delayHeap
	turns   map[string][]*item  // by volume handle that an item has its turn on: who waits for it
	behind  map[workKey][]*item // items that wait until that one is done
}

func newQueue(workers int) *queue {
	return &queue{
		wake:   make(chan struct{}, 1),
		items:  map[workKey]*item{},
		lanes:  lanes{workers: workers},
		turns:  map[string][]*item{},
		behind: map[workKey][]*item{},
	}
}

// run starts items as their turn comes, each by a call of start, which must not
// block. It returns when ctx ends; items that run go on.
func (q *queue) run(ctx context.Context, start func(*item)) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		it, wait := q.take(time.Now())
		if it != nil {
			start(it)
			continue
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-q.wake:
		case <-timer.C:
		}
	}
}

// take returns the item to run now, or how long there is nothing to do.
func (q *queue) take(now time.Time) (*item, time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.delayed) > 0 && !q.delayed[0].due.After(now) {
		q.wait(heap.Pop(&q.delayed).(*item), now)
	}
	it := q.lanes.next(now)
	if it != nil {
		load := &q.lanes.load[it.lane]
		load.waiting.Remove(it.place)
		it.state, it.began, it.again, it.hurry = running, now, false, false
		it.place = load.running.PushBack(it)
		if it.lane != releaseLane {
			q.lanes.last = it.lane
		}
		return it, 0
	}
	if len(q.delayed) > 0 {
		return nil, q.delayed[0].due.Sub(now)
	}
	return nil, time.Hour
}

// Add asks for work on a key, at once: a delay that it has is cut. An item that
// runs is noted as changed (see Changed).
func (q *queue) Add(key workKey, l lane) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it := q.items[key]
	if it == nil {
		it = &item{key: key, lane: l, state: parked}
		q.items[key] = it
	}
	if it.state == running {
		it.again = true
		return
	}
	if it.state == waiting && it.lane == l {
		return
	}
	q.lift(it)
	it.lane = l
	q.wait(it, time.Now())
}

// Hurry cuts the delay of an item that backs off, or the one that it would get at
// the end of its run: something has changed that may help it.
func (q *queue) Hurry(key workKey) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it := q.items[key]
	switch {
	case it == nil:
	case it.state == running:
		it.hurry = true
	case it.state == delayed:
		q.lift(it)
		q.wait(it, time.Now())
	}
}

// Open says whether the driver can be called. While it cannot, only releases start.
func (q *queue) Open(open bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lanes.open = open
	q.signal()
}

// Changed says whether a running item was asked for again since it began or since
// the last call of Changed.
func (q *queue) Changed(it *item) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	again := it.again
	it.again = false
	return again
}

// TakeTurn gives a running item its turn on a volume: the CSI spec wants one call
// per volume at a time. If it returns false, the item is parked until the turn is
// its own, will then run anew, and its worker must let go of it.
func (q *queue) TakeTurn(it *item, volumeHandle string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it.held == volumeHandle {
		return true
	}
	q.leaveTurn(it)
	waiters, taken := q.turns[volumeHandle]
	if !taken {
		q.turns[volumeHandle] = nil
		it.held = volumeHandle
		return true
	}
	q.park(it)
	q.turns[volumeHandle] = append(waiters, it)
	return false
}

// WaitFor parks a running item until the item of another key has run, if that one
// waits to run or runs now. It returns false, and does nothing, if it does not, or
// backs off. As with TakeTurn, the worker must let go of a parked item.
func (q *queue) WaitFor(it *item, key workKey) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	other := q.items[key]
	if other == nil || other.state == delayed {
		return false
	}
	q.leaveTurn(it)
	q.park(it)
	q.behind[key] = append(q.behind[key], it)
	return true
}

// Done ends the run of an item.
func (q *queue) Done(it *item) { q.end(it, it.lane, -1) }

// DoneFor ends the run of an item that is to run again in a lane after a delay,
// at once if that is 0.
func (q *queue) DoneFor(it *item, l lane, delay time.Duration) { q.end(it, l, delay) }

func (q *queue) end(it *item, next lane, delay time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	load := &q.lanes.load[it.lane]
	load.running.Remove(it.place)
	if it.held != "" { // it came as far as to a call
		load.ended(now.Sub(it.began))
	}
	q.leaveTurn(it)
	it.lane = next
	switch {
	case it.again || delay == 0 || it.hurry && delay > 0:
		q.wait(it, now)
	case delay > 0:
		it.state, it.due = delayed, now.Add(delay)
		heap.Push(&q.delayed, it)
	default:
		delete(q.items, it.key)
	}
	for _, follower := range q.behind[it.key] {
		q.resume(follower)
	}
	delete(q.behind, it.key)
	q.signal()
}

// wait puts an item that is in no list at the end of its lane.
func (q *queue) wait(it *item, now time.Time) {
	it.state, it.since = waiting, now
	it.place = q.lanes.load[it.lane].waiting.PushBack(it)
	q.signal()
}

// resume puts a parked item at the head of its lane: it has waited before.
func (q *queue) resume(it *item) {
	it.state = waiting
	it.place = q.lanes.load[it.lane].waiting.PushFront(it)
	q.signal()
}

// park takes a running item out of its lane.
func (q *queue) park(it *item) {
	q.lanes.load[it.lane].running.Remove(it.place)
	it.state = parked
	q.signal()
}

// lift takes an item that does not run out of wherever it waits.
func (q *queue) lift(it *item) {
	switch it.state {
	case waiting:
		q.lanes.load[it.lane].waiting.Remove(it.place)
	case delayed:
		q.delayed.take(it)
	case parked:
		for handle, waiters := range q.turns {
			q.turns[handle] = without(waiters, it)
		}
		for key, followers := range q.behind {
			q.behind[key] = without(followers, it)
		}
	}
}

// leaveTurn ends an item's turn on its volume and hands it to one who waits: a
// detach first, then the one who came first.
func (q *queue) leaveTurn(it *item) {
	if it.held == "" {
		return
	}
	handle, waiters := it.held, q.turns[it.held]
	it.held = ""
	if len(waiters) == 0 {
		delete(q.turns, handle)
		return
	}
	next := waiters[0]
	if i := slices.IndexFunc(waiters, func(w *item) bool { return w.lane == detachLane }); i > 0 {
		next = waiters[i]
	}
	q.turns[handle] = without(waiters, next)
	next.held = handle
	q.resume(next)
}

func without(items []*item, it *item) []*item {
	return slices.DeleteFunc(items, func(other *item) bool { return other == it })
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}
