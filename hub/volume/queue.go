package volume

import (
	"container/heap"
	"context"
	"time"
)

const (
	// A worker may ask for another run of its entry at once, but not twice in a row. An entry that waits for an
	// event, such as the end of a connection, would keep a processor and the Kubernetes API busy until then. The
	// pause doubles each time.
	repeatPause    = 100 * time.Millisecond
	repeatPauseMax = 2 * time.Second
)

// queue has the entries of one term. The Table's mutex guards it.
type queue struct {
	wake    chan struct{}  // an entry may have to start
	entries map[Key]*Entry // nil: there is no term
	lanes   lanes
	delayed delayHeap
	nodes   map[string]*node // by name, those that entries use or wait for
	slots   int              // of each node; 0: no limit
	full    map[string]*node // of nodes, those that are full
	probe   time.Time        // when letGo has to look without a sign of a free place
	looked  time.Time        // when Run last looked for an entry to start
	ended   bool             // Run has returned: no entry starts any more
	closed  time.Time        // when Close was called; zero: not yet

	moved map[string]bool // nodes: letGo has to look at their lines

	suspects map[Key]suspect // entries of the last term

	parallel bool   // see Next
	steps    uint64 // counts events of entries, to order them
}

// Begin begins a term without entries, and with its lanes shut. The term before must have ended: its Run
// has returned, and no worker has an entry.
func (t *Table) Begin(workers int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropEntries()
	t.queue = queue{wake: make(chan struct{}, 1), entries: map[Key]*Entry{}, lanes: lanes{workers: workers}, nodes: map[string]*node{}, suspects: t.suspects}
}

// Run starts entries, each by a call of start, which must not block. It returns when ctx ends;
// entries that run go on.
func (t *Table) Run(ctx context.Context, start func(*Entry)) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	defer t.end()
	for ctx.Err() == nil {
		e, wait := t.take(time.Now())
		if e != nil {
			start(e)
			continue
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-t.wake:
		case <-timer.C:
		}
	}
}

// Close ends a term whose workers have ended. Until the next Begin, Add does nothing.
func (t *Table) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropEntries()
	t.dropFound()
	t.closed = time.Now()
}

// suspect is what a term keeps of an entry for the next term: when a suspect may call the driver again.
type suspect struct {
	retries Retries
	due     time.Time
}

func (t *Table) dropEntries() {
	if len(t.entries) > 0 {
		t.suspects = nil
	}
	for key, e := range t.entries {
		if e.Retries.Suspect() {
			t.suspect(key, e)
		}
		if v := e.volume; v != nil {
			v.entries, e.volume = nil, nil
			t.tidy(v)
		}
	}
	t.entries, t.full = nil, nil
}

// suspect keeps a suspect for the next term.
func (t *Table) suspect(key Key, e *Entry) {
	if t.suspects == nil {
		t.suspects = map[Key]suspect{}
	}
	s := suspect{e.Retries, e.due}
	s.retries.ReadAnew = "" // in that term
	t.suspects[key] = s
}

func (t *Table) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
}

// Take does what Run does until it starts an entry or waits, for callers that start entries themselves. It returns the
// entry that starts now, which the caller works on as a worker does, or nil.
func (t *Table) Take(now time.Time) *Entry {
	for {
		if e, wait := t.take(now); e != nil || wait > 0 {
			return e
		}
	}
}

// take returns an entry to start now, or nil and the time until another entry may start.
func (t *Table) take(now time.Time) (*Entry, time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.looked = now
	for len(t.delayed) > 0 && !t.delayed[0].due.After(now) {
		t.becomeDue(heap.Pop(&t.delayed).(*Entry))
	}
	t.letGo(now)
	for held := 0; ; {
		e := t.lanes.pick(now)
		if e == nil && !t.letGo(now) {
			break
		}
		if e == nil {
			continue
		}
		if t.isHeld(e) {
			t.hold(e)
			if held++; held == mostHeld {
				return nil, 0 // others must not wait for the mutex
			}
			continue
		}
		load := &t.lanes.load[e.lane]
		load.waiting.Remove(e.link)
		e.link = nil
		if !t.takeSlot(e) {
			continue
		}
		e.state, e.began, e.wait = Running, now, Wait{}
		e.again, e.retryNow, e.renewed, e.pauses, e.called, e.waited, e.refused = false, false, false, false, false, false, false
		e.link = load.running.PushBack(e)
		if e.lane == AttachLane || e.lane == DetachLane {
			t.lanes.last = e.lane
		}
		return e, 0
	}
	idle := time.Hour
	if len(t.delayed) > 0 {
		idle = t.delayed[0].due.Sub(now)
	}
	if len(t.full) > 0 {
		idle = min(idle, t.probe.Sub(now))
	}
	if step := t.lanes.nextStep(now); step > 0 {
		idle = min(idle, step)
	}
	return nil, idle
}

// entry returns the entry of a key, a new one that is in no list if there is none. It returns nil between terms.
func (t *Table) entry(key Key, l Lane) *Entry {
	e := t.entries[key]
	if e != nil || t.entries == nil {
		return e
	}
	e = &Entry{Key: key, lane: l, state: Delayed, index: -1, since: time.Now()}
	if s, ok := t.suspects[key]; ok {
		e.Retries, e.due = s.retries, s.due
		delete(t.suspects, key)
	}
	t.entries[key] = e
	return e
}

// add is Add.
func (t *Table) add(key Key, l Lane, p Place) {
	p = t.sharing(key, p)
	e := t.entry(key, l)
	if e == nil {
		return // the next term adds entries for all work that the caches show
	}
	e.repeats = 0
	if e.state == Running {
		e.again = true
		return
	}
	if e.state != Delayed && e.lane == l && e.place == p {
		return
	}
	t.withdraw(e)
	e.lane = l
	before := t.place(e, p)
	t.becomeDue(e)
	t.evaluate(before)
}

// delay has an entry that is in no list wait until it is due.
func (t *Table) delay(e *Entry) {
	e.state = Delayed
	heap.Push(&t.delayed, e)
	t.evaluate(e.volume)
	t.signal()
}

// becomeDue lets an entry that is in no list start as soon as Next allows.
func (t *Table) becomeDue(e *Entry) {
	t.steps++
	e.state, e.came, e.waited, e.pauses, e.index = Blocked, t.steps, false, false, -1
	t.consider(e)
}

// consider lets a Blocked entry start if Next allows it.
func (t *Table) consider(e *Entry) {
	if e.volume == nil {
		t.admit(e)
	} else {
		t.evaluate(e.volume)
	}
}

// admit puts an entry into its lane, at the head if it was blocked, or into the line of its node.
func (t *Table) admit(e *Entry) {
	if t.isHeld(e) {
		t.joinLine(e)
		return
	}
	t.toLane(e, e.waited)
}

// toLane puts an entry into its lane, at the head or at the end.
func (t *Table) toLane(e *Entry, first bool) {
	e.state, e.wait = Ready, Wait{}
	waiting := &t.lanes.load[e.lane].waiting
	if first {
		e.link = waiting.PushFront(e)
	} else {
		e.link = waiting.PushBack(e)
	}
	t.signal()
}

// withdraw takes an entry that does not run out of the list in which it waits. It loses its permit.
func (t *Table) withdraw(e *Entry) {
	t.returnPermit(e)
	switch {
	case e.state == Ready && e.link != nil:
		t.lanes.load[e.lane].waiting.Remove(e.link)
		e.link = nil
		t.freeSlot(e)
	case e.state == Ready:
		t.leaveWaiting(e)
	case e.state == Delayed && e.index >= 0:
		t.delayed.take(e)
		e.index = -1
	}
}

// finish ends the run of an entry. It runs again in the next lane after the delay, unless that is
// negative.
func (t *Table) finish(e *Entry, next Lane, delay time.Duration) {
	now := time.Now()
	load := &t.lanes.load[e.lane]
	load.running.Remove(e.link)
	e.link = nil
	if e.called {
		load.addCall(now.Sub(e.began))
	}
	t.freeSlot(e)
	t.returnPermit(e)
	if next != e.lane {
		e.since = now // it is other work
	}
	e.lane = next
	if e.renewed && e.Retries.Suspect() {
		e.again = false // a change of its object is in the delay
	} else {
		e.retryNow = e.retryNow || e.renewed
	}
	again := e.again || e.retryNow && delay >= 0
	again = again || e.refused && delay >= 0 // the line of the node is its delay
	if delay > 0 && !e.pauses {
		t.steps++
		e.tried = t.steps
	}
	if delay == 0 && !again {
		delay = e.repeat()
	} else {
		e.repeats = 0
	}
	switch {
	case again || delay == 0:
		t.becomeDue(e)
	case delay > 0:
		e.due = now.Add(delay)
		t.delay(e)
	default:
		t.drop(e)
	}
	t.signal()
}

func (t *Table) signal() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}
