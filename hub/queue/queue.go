package queue

import (
	"context"
	"maps"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// WedgedAfter is how long an item may wait that could start. Run looks for it within milliseconds, on an
// overloaded machine within seconds.
const WedgedAfter = time.Minute

// mostBlocked is how many items Start blocks under one lock of the mutex: others must not wait for it.
const mostBlocked = 200

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

// Beliefs is what is believed of the driver's volumes, as far as the Queue needs it. Its methods are called with the
// mutex locked, and do not block.
type Beliefs interface {
	// NeedsCapacity reports whether the attach of an item takes one more place on its node. repair: it attaches what is lost.
	NeedsCapacity(key Key, at Destination, repair bool) bool
	// IsSingleNode reports whether this process has published the volume for an item in a single-node mode.
	IsSingleNode(key Key, handle string) bool
	// Touched notes that an item begins, goes on or ends at a target.
	Touched(attach.Target)
	// Ended notes that a run of an item ends, while others still wait for it. It reports whether the object is gone.
	Ended(key Key) bool
}

// term is what a Queue keeps for one term.
type term struct {
	wake    chan struct{}      // perhaps an item can start
	items   map[Key]*Item      // nil: there is no term
	volumes map[string][]*Item // the items whose destination it is, by volume handle
	nodes   map[string]*node   // by name, those that items use or wait for
	alarms  []alarm            // the next last
	looked  time.Time          // when Run last looked for an item to start; zero: it does not run
	steps   uint64             // counts events of items, to order them

	load     [LaneCount]laneLoad
	last     Lane      // AttachLane or DetachLane, the one from which an item was started last
	open     bool      // the driver can be called
	shut     bool      // Shut was called in this term
	reopened time.Time // when Open was called after Shut; zero: never
}

// alarm is when Start looks at an item that is Delayed, or at a node. It may be void by then.
type alarm struct {
	at   time.Time
	item *Item
	node string
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

// lock locks the mutex. It returns what unlocks it.
func (q *Queue) lock() func() {
	q.mu.Lock()
	return q.mu.Unlock
}

// Begin begins a term without items, and with its lanes shut. The term before must have ended: its Run
// has returned, and no worker has an item.
func (q *Queue) Begin() {
	defer q.lock()()
	q.CloseLocked()
	q.term = term{wake: make(chan struct{}, 1), items: map[Key]*Item{}, volumes: map[string][]*Item{}, nodes: map[string]*node{}}
}

// CloseLocked ends a term whose workers have ended. Until the next Begin, Add does nothing.
func (q *Queue) CloseLocked() {
	if q.items != nil {
		maps.DeleteFunc(q.items, func(_ Key, e *Item) bool { return !e.Retries.Suspect() })
		q.suspects = q.items
	}
	q.items, q.volumes, q.nodes = nil, nil, nil
}

// Run starts items, each by a call of start, which must not block. It returns when ctx ends;
// items that run go on.
func (q *Queue) Run(ctx context.Context, start func(*Item)) {
	defer func() {
		defer q.lock()()
		q.looked = time.Time{}
	}()
	for ctx.Err() == nil {
		e, wait := q.Start(time.Now())
		if e != nil {
			start(e)
			continue
		}
		select {
		case <-ctx.Done():
		case <-q.wake:
		case <-time.After(wait):
		}
	}
}

// Start returns an item that starts now, on which the caller works, or nil and the time until another item may start; 0: Start has
// blocked many items, and must be called again.
func (q *Queue) Start(now time.Time) (*Item, time.Duration) {
	defer q.lock()()
	q.looked = now
	for range mostBlocked {
		q.ring(now)
		e := q.pick(now)
		if e == nil {
			return nil, q.idle(now)
		}
		n := q.nodeOf(e)
		if n != nil && n.full == nil && len(n.blocked) == 0 && q.hasSlot(n) {
			n.give(e)
		}
		if n == nil || e.slot {
			l := &q.load[e.Lane]
			l.waiting, l.running = l.waiting[1:], append(l.running, e)
			if e.Lane <= DetachLane {
				q.last = e.Lane
			}
			e.State, e.began = Running, now
			e.again, e.retry, e.pauses, e.called = false, false, false, false
			return e, 0
		}
		q.withdraw(e)
		q.blockAt(n, e)
		q.signalVolume(e.dest.Target.VolumeHandle) // if its node is full, it holds nobody up any more
	}
	return nil, 0
}

// setAlarm has Start look at an item or a node at a time; zero: at once.
func (q *Queue) setAlarm(a alarm) {
	i := sort.Search(len(q.alarms), func(i int) bool { return !q.alarms[i].at.After(a.at) })
	q.alarms = slices.Insert(q.alarms, i, a)
	q.signal()
}

// idle returns how long it takes until the next alarm.
func (q *Queue) idle(now time.Time) time.Duration {
	if n := len(q.alarms); n > 0 {
		return q.alarms[n-1].at.Sub(now)
	}
	return time.Hour
}

// ring looks at all whose alarms are due.
func (q *Queue) ring(now time.Time) {
	for q.idle(now) <= 0 {
		last := len(q.alarms) - 1
		a := q.alarms[last]
		q.alarms = q.alarms[:last]
		if n := q.nodes[a.node]; n != nil {
			q.offer(n, now)
		} else if e := a.item; e != nil && e.State == Delayed && e.Due.Equal(a.at) {
			q.becomeDue(e)
		}
	}
}

// SetLimits sets other limits. Calls in flight go on.
func (q *Queue) SetLimits(l Limits) {
	defer q.lock()()
	q.limits = l
	for _, n := range q.nodes {
		q.signalNode(n)
	}
	for handle := range q.volumes {
		q.signalVolume(handle)
	}
	q.signal()
}

// Open lets attaches and detaches start: the driver can be called. After Shut the number of
// calls at once grows from a few to all workers within seconds: a driver that has just come back must not
// get all calls at once that have waited.
func (q *Queue) Open() {
	defer q.lock()()
	q.open = true
	if q.shut {
		q.reopened = time.Now()
		for i := range rampSteps {
			q.setAlarm(alarm{at: q.reopened.Add(time.Duration(i+1) * rampStep)})
		}
	}
	q.signal()
}

// Shut lets no further attach and detach start: the driver cannot be called.
func (q *Queue) Shut() {
	defer q.lock()()
	q.open, q.shut = false, true
}

// signal wakes Run.
func (q *Queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}
