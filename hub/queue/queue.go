package queue

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
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

// Add asks for a run of the item of a key at once: it ends a delay. An item that is running runs again
// afterwards, unless its worker calls ClearChanged. Between terms Add does nothing.
func (q *Queue) Add(key Key, l Lane, p Place) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.AddLocked(key, l, p)
}

// AddLocked is Add.
func (q *Queue) AddLocked(key Key, l Lane, p Place) {
	e := q.item(key, l)
	if e == nil {
		return // the next term adds items for all work that the caches show
	}
	p = q.sharing(key, p)
	e.repeats = 0
	switch {
	case e.State == Running:
		e.again = true
	case e.State == Delayed || e.Lane != l || e.place != p:
		q.withdraw(e)
		e.Lane = l
		left := q.move(e, p)
		q.becomeDue(e)
		q.signalVolume(left)
	}
}

// Renew is Add and RetryNow, because the driver may answer otherwise than before: its connection or attachRequired is new. But
// it does not end the delay of a suspect (Retries).
func (q *Queue) Renew(key Key, l Lane, p Place) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.RenewLocked(key, l, p)
}

// RenewLocked is Renew.
func (q *Queue) RenewLocked(key Key, l Lane, p Place) {
	e := q.item(key, l)
	if e == nil {
		return
	}
	suspect := e.State != Running && e.Retries.Suspect() && e.Lane == l
	q.AddLocked(key, l, p)
	switch {
	case e.State == Running:
		e.renewed = true
	case suspect:
		q.withdraw(e)
		due := time.Now().Add(e.Retries.AfterReconnect)
		if e.alarm.at.After(due) {
			due = e.alarm.at
		}
		q.delay(e, due)
	}
}

// RetryNow ends the delay of an item, or the delay that it would get at the end of its run. It is called when an
// object has changed that may help the item.
func (q *Queue) RetryNow(key Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e := q.items[key]; e != nil {
		q.retryNow(e)
	}
}

// RetryAfter is RetryNow for all items whose last try failed for a reason.
func (q *Queue) RetryAfter(v diagnosis.Verdict) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range q.items {
		if e.Tries > 0 && e.Cause.Verdict == v {
			q.retryNow(e)
		}
	}
}

func (q *Queue) retryNow(e *Item) {
	e.repeats = 0
	switch e.State {
	case Running:
		e.retryNow = true
	case Delayed:
		q.withdraw(e)
		q.becomeDue(e)
	}
}

// item returns the item of a key, a new one that is in no list if there is none. It returns nil between terms.
func (q *Queue) item(key Key, l Lane) *Item {
	e := q.items[key]
	if e == nil && q.items != nil {
		e = &Item{Key: key, Progress: Progress{Lane: l, Asked: time.Now()}}
		e.alarm.item = e
		if s := q.suspects[key]; s != nil {
			e.Retries, e.Tries, e.alarm.at = s.Retries, s.Tries, s.alarm.at
			e.Retries.ReadAnew = "" // in that term
			delete(q.suspects, key)
		}
		q.items[key] = e
	}
	return e
}

// sharing returns a place that is not Shared if this process has published the volume in a single-node mode.
func (q *Queue) sharing(key Key, p Place) Place {
	p.Shared = p.Shared && !q.beliefs.IsSingleNode(key, p.Target.VolumeHandle)
	return p
}

// move puts an item at a place, or makes it unplaced. It returns the handle of the volume that it has left, which the caller
// must signal, "" for none.
func (q *Queue) move(e *Item, p Place) (left string) {
	q.beliefs.Touched(e.place.Target)
	q.beliefs.Touched(p.Target)
	from, to := e.place.Target.VolumeHandle, p.Target.VolumeHandle
	e.place = p
	if from == to {
		return ""
	}
	if from != "" {
		q.volumes[from] = slices.DeleteFunc(q.volumes[from], func(other *Item) bool { return other == e })
		if len(q.volumes[from]) == 0 {
			delete(q.volumes, from)
		}
	}
	if to != "" {
		q.volumes[to] = append(q.volumes[to], e)
	}
	return from
}

// drop removes an item that is in no list.
func (q *Queue) drop(e *Item) {
	delete(q.items, e.Key)
	q.signalVolume(q.move(e, Place{}))
}

// delay has an item that is in no list wait until it is due.
func (q *Queue) delay(e *Item, due time.Time) {
	e.State = Delayed
	q.alarms.set(&e.alarm, due)
	q.signalVolume(e.place.Target.VolumeHandle)
	q.signal()
}

// becomeDue lets an item that is in no list start as soon as Next allows.
func (q *Queue) becomeDue(e *Item) {
	q.steps++
	e.came, e.waited, e.pauses = q.steps, false, false
	q.park(e, Wait{Kind: WaitVolume})
	q.reconsider(e)
}

// park notes what an item that is in no list waits for.
func (q *Queue) park(e *Item, w Wait) { e.State, e.Wait = Parked, w }

// reconsider lets an item that is parked in no list start if Next allows it.
func (q *Queue) reconsider(e *Item) {
	if handle := e.place.Target.VolumeHandle; handle != "" {
		q.signalVolume(handle)
	} else {
		q.toLane(e)
	}
}

// signalVolume lets the items of a volume that may start now into their lanes, and takes the others out of their
// lanes. It does nothing for "".
func (q *Queue) signalVolume(handle string) {
	items := q.volumes[handle]
	if len(items) == 1 { // nearly always
		if e := items[0]; e.State == Parked && !e.mayStart() {
			q.toLane(e)
		}
	}
	if len(items) < 2 {
		return
	}
	var admitted []*Item
	for i, verdict := range Next(q.calls(items), q.limits.Parallel) {
		switch e := items[i]; {
		case e.State == Running || e.State == Delayed:
		case !verdict.Start:
			q.withdraw(e)
			e.waited = true
			w := Wait{Kind: verdict.Wait}
			if verdict.Wait == WaitDetach {
				first := items[verdict.After]
				w.Detach, w.Node = first.Key, first.place.Node
			}
			q.park(e, w)
		case !e.mayStart():
			admitted = append(admitted, e)
		}
	}
	slices.SortFunc(admitted, func(a, b *Item) int { return cmp.Compare(b.came, a.came) })
	for _, e := range admitted { // each goes to the head of its lane
		q.toLane(e)
	}
}

// calls returns items of one volume as Next needs them.
func (q *Queue) calls(items []*Item) []Call {
	calls := make([]Call, len(items))
	for i, e := range items {
		calls[i] = e.call(q.needsPlace(e))
	}
	return calls
}

// toLane puts an item that Next lets start into its lane, at the head if it was parked, or has it wait for a place on its node.
func (q *Queue) toLane(e *Item) {
	if q.needsPlace(e) {
		q.parkAt(q.nodes[e.place.Node], e, WaitCapacity)
		return
	}
	e.State, e.Wait = Ready, Wait{}
	waiting := &q.lanes.load[e.Lane].waiting
	if e.waited {
		e.link = waiting.PushFront(e)
	} else {
		e.link = waiting.PushBack(e)
	}
	q.signal()
}

// withdraw takes an item that does not run out of the list in which it waits. It loses its slot and its permit.
func (q *Queue) withdraw(e *Item) {
	switch {
	case e.State == Ready:
		q.lanes.leave(e)
	case e.State == Delayed:
		q.alarms.unset(&e.alarm)
	case e.mayStart():
		n := q.nodes[e.place.Node]
		n.parked = slices.DeleteFunc(n.parked, func(other *Item) bool { return other == e })
		q.signalNode(n)
	}
	q.leaveNode(e)
}

// leaveNode takes an item's slot and permit.
func (q *Queue) leaveNode(e *Item) {
	q.endPermit(e, (*fullNode).giveBack)
	q.freeSlot(e)
}

// DropLocked removes the item of a key whose work is void, unless it runs.
func (q *Queue) DropLocked(key Key) {
	if e := q.items[key]; e != nil && e.State != Running {
		q.withdraw(e)
		q.drop(e)
	}
}

// EndLocked removes the item of a key whose object is gone. If a worker has it, EndLocked returns false: the item runs once
// more, because another object may have the name by now.
func (q *Queue) EndLocked(key Key) bool {
	if e := q.items[key]; e != nil && e.State == Running {
		e.again = true
		return false
	}
	q.DropLocked(key)
	return true
}

// IsOpenLocked reports whether there is a term.
func (q *Queue) IsOpenLocked() bool { return q.items != nil }

// HasLocked reports whether there is an item of a key.
func (q *Queue) HasLocked(key Key) bool { return q.items[key] != nil }

// LeaveLineLocked removes the item of a key that waits for a place, and whose object is gone.
func (q *Queue) LeaveLineLocked(key Key) {
	if e := q.items[key]; e != nil && e.State == Parked && e.Wait.Kind == WaitCapacity {
		q.DropLocked(key)
	}
}

// IsAtLocked reports whether there is an item at a target.
func (q *Queue) IsAtLocked(target attach.Target) bool {
	return slices.ContainsFunc(q.volumes[target.VolumeHandle], func(e *Item) bool { return e.place.Target == target })
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
