package hub

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

const (
	// A worker may ask for another run of its item at once, but not twice in a row: what
	// has to wait for others, a connection that ends say, would keep a processor and the
	// Kubernetes API busy until then. The pause doubles with each further time.
	repeatPause    = 100 * time.Millisecond
	repeatPauseMax = 2 * time.Second
)

// queue holds the work of one driver and hands it to as many workers as the
// driver may have: one item per key, in lanes, later where it backs off, and one
// at a time per volume, or per volume and node where the volume may be on several.
// Nothing in it blocks but run.
type queue struct {
	wake chan struct{} // something may be to start

	mu      sync.Mutex
	items   map[workKey]*item
	lanes   lanes
	delayed delayHeap
	turns   map[string]*turn    // by handle of a volume that an item has a turn on
	nodes   map[string]*crowd   // by node that an item has a place on
	places  int                 // on each node; 0: no limit
	behind  map[workKey][]*item // items that wait until that one is done
	looked  time.Time           // when something to start was looked for last
	ended   bool                // run has returned: nothing starts any more

	parallel bool   // items that share the turn on a volume have it at the same time
	steps    uint64 // counts what becomes of turns, to tell what came before what
}

func newQueue(workers int) *queue {
	return &queue{
		wake:   make(chan struct{}, 1),
		items:  map[workKey]*item{},
		lanes:  lanes{workers: workers},
		turns:  map[string]*turn{},
		nodes:  map[string]*crowd{},
		behind: map[workKey][]*item{},
	}
}

// run starts items as their turn comes, each by a call of start, which must not
// block. It returns when ctx ends; items that run go on.
func (q *queue) run(ctx context.Context, start func(*item)) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	defer q.setEnded()
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

func (q *queue) setEnded() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
}

// take returns the item to run now, or how long there is nothing to do.
func (q *queue) take(now time.Time) (*item, time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.looked = now
	for len(q.delayed) > 0 && !q.delayed[0].due.After(now) {
		q.wait(heap.Pop(&q.delayed).(*item), now)
	}
	it := q.lanes.next(now)
	if it != nil {
		load := &q.lanes.load[it.lane]
		load.waiting.Remove(it.link)
		it.state, it.began, it.again, it.hurry, it.soon = running, now, false, false, false
		it.link = load.running.PushBack(it)
		if it.lane == attachLane || it.lane == detachLane {
			q.lanes.last = it.lane
		}
		return it, 0
	}
	idle := time.Hour
	if len(q.delayed) > 0 {
		idle = q.delayed[0].due.Sub(now)
	}
	if step := q.lanes.nextStep(now); step > 0 {
		idle = min(idle, step)
	}
	return nil, idle
}

// Add asks for work on a key, at once: a delay that it has is cut. An item that
// runs is noted as changed (see Changed).
func (q *queue) Add(key workKey, l lane) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(key, l)
}

// Renew is Add for what has new reason to succeed: if its run fails, there is another
// one at once.
func (q *queue) Renew(key workKey, l lane) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it := q.add(key, l); it.state == running {
		it.hurry = true
	}
}

func (q *queue) add(key workKey, l lane) *item {
	it := q.items[key]
	if it == nil {
		it = &item{key: key, lane: l, state: parked, since: time.Now()}
		q.items[key] = it
	}
	it.repeats = 0
	if it.state == running {
		it.again = true
		return it
	}
	if it.state == waiting && it.lane == l {
		return it
	}
	q.lift(it)
	it.lane = l
	q.wait(it, time.Now())
	return it
}

// Has says whether there is an item of a key, in whatever state.
func (q *queue) Has(key workKey) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.items[key] != nil
}

// Hurry cuts the delay of an item that backs off, or the one that it would get at
// the end of its run: something has changed that may help it.
func (q *queue) Hurry(key workKey) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it := q.items[key]
	if it == nil {
		return
	}
	it.repeats = 0
	switch it.state {
	case running:
		it.hurry = true
	case delayed:
		q.lift(it)
		q.wait(it, time.Now())
	}
}

// SetLimits changes how many calls may be in flight at once, and for one node (0: no
// limit of its own). Those that are go on.
func (q *queue) SetLimits(workers, perNode int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lanes.workers, q.places = workers, perNode
	for node, c := range q.nodes {
		q.admit(node, c)
	}
	q.signal()
}

// Open lets attaches and detaches start: the driver can be called. After a Shut the
// number of calls at once grows from a few to all workers within seconds: all that
// has waited must not fall upon a driver that has just come back.
func (q *queue) Open() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lanes.open = true
	if q.lanes.shut {
		q.lanes.reopened = time.Now()
	}
	q.signal()
}

// Shut lets no further attach and detach start: the driver cannot be called.
func (q *queue) Shut() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lanes.open, q.lanes.shut = false, true
}

// busy says whether anything runs that may call the driver.
func (q *queue) busy() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lanes.inFlight() > 0
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

// Done ends the run of an item.
func (q *queue) Done(it *item) { q.end(it, it.lane, -1) }

// DoneFor ends the run of an item that is to run again in a lane after a delay, at once if
// that is 0. If a run that began so ends in the same way, and no Add, Renew or Hurry came
// for the item meanwhile, there is a pause; others that have to wait for the item do so still.
func (q *queue) DoneFor(it *item, l lane, delay time.Duration) { q.end(it, l, delay) }

// Postpone is DoneFor for an item that has come at a bad moment, which says nothing about
// its work: others that have to wait for it do so still.
func (q *queue) Postpone(it *item, delay time.Duration) {
	q.mu.Lock()
	it.soon = true
	q.mu.Unlock()
	q.end(it, it.lane, delay)
}

func (q *queue) end(it *item, next lane, delay time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	load := &q.lanes.load[it.lane]
	load.running.Remove(it.link)
	if it.hasTurn() { // it came as far as to a call
		load.ended(now.Sub(it.began))
	}
	q.leaveTurn(it)
	q.leavePlace(it)
	if next != it.lane {
		it.since = now // other work
	}
	it.lane = next
	again := it.again || it.hurry && delay >= 0
	if delay == 0 && !again {
		delay = it.repeat()
	} else {
		it.repeats = 0
	}
	switch {
	case again || delay == 0:
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
	it.state = waiting
	it.link = q.lanes.load[it.lane].waiting.PushBack(it)
	q.signal()
}

// resume puts a parked item at the head of its lane: it has waited before.
func (q *queue) resume(it *item) {
	it.state = waiting
	it.turn, it.crowd, it.behind = volumeCall{}, "", workKey{}
	it.link = q.lanes.load[it.lane].waiting.PushFront(it)
	q.signal()
}

// park takes a running item out of its lane.
func (q *queue) park(it *item) {
	q.lanes.load[it.lane].running.Remove(it.link)
	it.state = parked
	q.signal()
}

// lift takes an item that does not run out of wherever it waits.
func (q *queue) lift(it *item) {
	switch it.state {
	case waiting:
		q.lanes.load[it.lane].waiting.Remove(it.link)
	case delayed:
		q.delayed.take(it)
	case parked:
		volumeHandle := it.turn.volumeHandle
		if t := q.turns[volumeHandle]; t != nil {
			t.waiters = without(t.waiters, it)
			q.handOn(volumeHandle, t) // others may have waited for it to go first
		}
		if c := q.nodes[it.crowd]; c != nil {
			c.waiters = without(c.waiters, it)
		}
		if followers, ok := q.behind[it.behind]; ok {
			q.behind[it.behind] = without(followers, it)
		}
		it.turn, it.crowd, it.behind = volumeCall{}, "", workKey{}
	}
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}
