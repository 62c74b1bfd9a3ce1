package queue

import (
	"context"
	"sync"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// WedgedAfter is how long an item may wait that could start. Run looks for it within milliseconds, on an
// overloaded machine within seconds.
const WedgedAfter = time.Minute

// mostParked is how many items take parks under one lock of the mutex: others must not wait for it.
const mostParked = 200

// Beliefs is what is believed of the driver's volumes, as far as the Queue asks for it. Its methods are called with the
// mutex locked, and do not block.
type Beliefs interface {
	// NeedsPlace reports whether the attach of an item takes one more place on its node. repair: it attaches what is lost.
	NeedsPlace(key Key, at Place, repair bool) bool
	// IsSingleNode reports whether this process has published the volume for an item in a single-node mode.
	IsSingleNode(key Key, handle string) bool
	// Touched notes that an item begins, goes on or ends at a target.
	Touched(attach.Target)
	// Ended notes that a run of an item ends, while others still wait for it. It reports whether the object is gone.
	Ended(key Key) bool
}

// Queue has the items of one term of a driver's lease, and decides which of them may start. One mutex guards it together
// with the beliefs. Its methods are safe for concurrent use, and only Run blocks; the caller of a method whose name ends
// in Locked has locked the mutex.
type Queue struct {
	mu       *sync.Mutex // guards all that follows
	beliefs  Beliefs
	limits   Limits
	suspects map[Key]*Item // of the last term
	term
}

// term is what a Queue keeps for one term.
type term struct {
	wake    chan struct{}      // an item may have to start
	items   map[Key]*Item      // nil: there is no term
	volumes map[string][]*Item // the items that are placed there, by volume handle
	nodes   map[string]*node   // by name, those that items use or wait for
	lanes   lanes
	alarms  alarms
	looked  time.Time // when Run last looked for an item to start
	ended   bool      // Run has returned: no item starts any more
	steps   uint64    // counts events of items, to order them

	signalled []*node // take has to look whether the items that wait there may go
}

// Limits are the settings of a Queue.
type Limits struct {
	Workers  int  // calls that may be in flight at once
	PerNode  int  // of these, for one node; 0: no limit of its own
	Parallel bool // calls for a multi-node volume on different nodes may run side by side
	// Pause returns how long a full node is not tried without a sign of a free place, after a number of refusals in a row,
	// at least 1. It must not block.
	Pause func(refused int) time.Duration
}

// New returns a Queue without a term.
func New(mu *sync.Mutex, b Beliefs) *Queue {
	return &Queue{mu: mu, beliefs: b}
}

// Begin begins a term without items, and with its lanes shut. The term before must have ended: its Run
// has returned, and no worker has an item.
func (q *Queue) Begin() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.CloseLocked()
	q.term = term{wake: make(chan struct{}, 1), items: map[Key]*Item{}, volumes: map[string][]*Item{}, nodes: map[string]*node{}, lanes: lanes{workers: q.limits.Workers}}
}

// CloseLocked ends a term whose workers have ended. Until the next Begin, Add does nothing.
func (q *Queue) CloseLocked() {
	if len(q.items) > 0 {
		q.suspects = map[Key]*Item{}
	}
	for key, e := range q.items {
		if e.Retries.Suspect() {
			q.suspects[key] = e
		}
	}
	q.items, q.volumes, q.nodes = nil, nil, nil
}

// Run starts items, each by a call of start, which must not block. It returns when ctx ends;
// items that run go on.
func (q *Queue) Run(ctx context.Context, start func(*Item)) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	defer q.end()
	for ctx.Err() == nil {
		e, wait := q.take(time.Now())
		if e != nil {
			start(e)
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

func (q *Queue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
}

// Take does what Run does until it starts an item or waits, for callers that start items themselves. It returns the
// item that starts now, which the caller works on as a worker does, or nil.
func (q *Queue) Take(now time.Time) *Item {
	for {
		if e, wait := q.take(now); e != nil || wait > 0 {
			return e
		}
	}
}

// take returns an item to start now, or nil and the time until another item may start.
func (q *Queue) take(now time.Time) (*Item, time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.looked = now
	for a := q.alarms.next(now); a != nil; a = q.alarms.next(now) {
		if a.item != nil {
			q.becomeDue(a.item)
		} else {
			q.signalNode(a.node)
		}
	}
	for range mostParked {
		q.offerNodes(now)
		e := q.lanes.pick(now)
		if e == nil {
			return nil, q.idle(now)
		}
		if q.enter(e) {
			q.lanes.start(e)
			e.State, e.began = Running, now
			e.again, e.retryNow, e.renewed, e.pauses, e.called, e.waited = false, false, false, false, false, false
			return e, 0
		}
	}
	return nil, 0
}

// idle returns how long it takes until another item may start.
func (q *Queue) idle(now time.Time) time.Duration {
	idle := time.Hour
	if len(q.alarms) > 0 {
		idle = q.alarms[0].at.Sub(now)
	}
	if step := q.lanes.nextStep(now); step > 0 {
		idle = min(idle, step)
	}
	return idle
}

// SetLimits sets other limits. Calls in flight go on.
func (q *Queue) SetLimits(l Limits) {
	q.mu.Lock()
	defer q.mu.Unlock()
	before := q.limits.Parallel
	q.limits, q.lanes.workers = l, l.Workers
	for _, n := range q.nodes {
		q.signalNode(n)
	}
	if before != l.Parallel {
		for handle := range q.volumes {
			q.signalVolume(handle)
		}
	}
	q.signal()
}

// Open lets attaches and detaches start: the driver can be called. After Shut the number of
// calls at once grows from a few to all workers within seconds: a driver that has just come back must not
// get all calls at once that have waited.
func (q *Queue) Open() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lanes.open = true
	if q.lanes.shut {
		q.lanes.reopened = time.Now()
	}
	q.signal()
}

// Shut lets no further attach and detach start: the driver cannot be called.
func (q *Queue) Shut() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lanes.open, q.lanes.shut = false, true
}

// signal wakes Run.
func (q *Queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}
