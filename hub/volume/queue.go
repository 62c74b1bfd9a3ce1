package volume

import (
	"container/heap"
	"context"
	"time"
)

const (
	// A worker may ask for another run of its entry at once, but not twice in a row: what
	// has to wait for others, a connection that ends say, would keep a processor and the
	// Kubernetes API busy until then. The pause doubles with each further time.
	repeatPause    = 100 * time.Millisecond
	repeatPauseMax = 2 * time.Second
)

// queue holds the entries of one term: in lanes, or later where they back off. The Table's mutex
// guards it.
type queue struct {
	wake    chan struct{} // something may be to start
	entries map[Key]*Entry
	lanes   lanes
	delayed delayHeap
	nodes   map[string]*node // those of which slots are taken
	slots   int              // of each node; 0: no limit
	looked  time.Time        // when something to start was looked for last
	ended   bool             // Run has returned: nothing starts any more
	closed  time.Time        // when Close was called; zero: not yet

	parallel bool   // see Next
	steps    uint64 // counts what entries go through, to tell what came before what
}

// Begin begins a term: with no entries, and shut. The term before must have ended: its Run has
// returned, and no worker has an entry.
func (t *Table) Begin(workers int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropEntries()
	t.queue = queue{wake: make(chan struct{}, 1), entries: map[Key]*Entry{}, lanes: lanes{workers: workers}, nodes: map[string]*node{}}
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

// Close ends a term when its workers have ended: nothing is asked for until the next Begin.
func (t *Table) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropEntries()
	t.closed = time.Now()
}

func (t *Table) dropEntries() {
	for _, e := range t.entries {
		if v := e.volume; v != nil {
			v.entries, e.volume = nil, nil
			t.tidy(v)
		}
	}
	t.entries = nil
}

func (t *Table) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
}

// take returns the entry to run now, or how long there is nothing to do.
func (t *Table) take(now time.Time) (*Entry, time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.looked = now
	for len(t.delayed) > 0 && !t.delayed[0].due.After(now) {
		t.becomeDue(heap.Pop(&t.delayed).(*Entry))
	}
	for {
		e := t.lanes.pick(now)
		if e == nil {
			break
		}
		load := &t.lanes.load[e.lane]
		load.waiting.Remove(e.link)
		e.link = nil
		if !t.takeSlot(e) {
			continue
		}
		e.state, e.began, e.wait = Running, now, Wait{}
		e.again, e.retryNow, e.soon, e.called, e.waited = false, false, false, false, false
		e.link = load.running.PushBack(e)
		if e.lane == AttachLane || e.lane == DetachLane {
			t.lanes.last = e.lane
		}
		return e, 0 // what Next has let start holds up others as what is in flight does
	}
	idle := time.Hour
	if len(t.delayed) > 0 {
		idle = t.delayed[0].due.Sub(now)
	}
	if step := t.lanes.nextStep(now); step > 0 {
		idle = min(idle, step)
	}
	return nil, idle
}

// add asks for work on a key, at once: a delay that it has is cut. An entry that runs is noted as
// changed.
func (t *Table) add(key Key, l Lane, p Place) *Entry {
	if t.entries == nil {
		return &Entry{} // there is no term: the next one begins with a look at everything
	}
	p = t.sharing(key, p)
	e := t.entries[key]
	if e == nil {
		e = &Entry{Key: key, lane: l, state: Delayed, index: -1, since: time.Now()}
		t.entries[key] = e
	}
	e.repeats = 0
	if e.state == Running {
		e.again = true
		return e
	}
	if e.state != Delayed && e.lane == l && e.place == p {
		return e
	}
	t.withdraw(e)
	e.lane = l
	left := t.place(e, p)
	t.becomeDue(e)
	t.evaluate(left)
	return e
}

// becomeDue has Next decide about an entry that is in no list.
func (t *Table) becomeDue(e *Entry) {
	t.steps++
	e.state, e.came, e.waited, e.soon, e.index = Blocked, t.steps, false, false, -1
	if e.volume == nil {
		t.admit(e)
	} else {
		t.evaluate(e.volume)
	}
}

// admit lets an entry into its lane: at the head if it has waited.
func (t *Table) admit(e *Entry) { t.toLane(e, e.waited) }

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

// withdraw takes an entry that does not run out of wherever it waits.
func (t *Table) withdraw(e *Entry) {
	switch {
	case e.state == Ready && e.link != nil:
		t.lanes.load[e.lane].waiting.Remove(e.link)
		e.link = nil
		t.releaseSlot(e)
	case e.state == Ready:
		t.leaveNode(e)
	case e.state == Delayed && e.index >= 0:
		t.delayed.take(e)
		e.index = -1
	}
}

// finish ends the run of an entry: for good if delay is negative.
func (t *Table) finish(e *Entry, next Lane, delay time.Duration) {
	now := time.Now()
	load := &t.lanes.load[e.lane]
	load.running.Remove(e.link)
	e.link = nil
	if e.called {
		load.ended(now.Sub(e.began))
	}
	t.releaseSlot(e)
	if next != e.lane {
		e.since = now // other work
	}
	e.lane = next
	again := e.again || e.retryNow && delay >= 0
	if delay == 0 && !again {
		delay = e.repeat()
	} else {
		e.repeats = 0
	}
	switch {
	case again || delay == 0:
		t.becomeDue(e)
	case delay > 0:
		e.state, e.due = Delayed, now.Add(delay)
		heap.Push(&t.delayed, e)
		t.evaluate(e.volume)
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
