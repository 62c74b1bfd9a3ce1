package volume

import "time"

// Waited is a time in which an entry was due and did not run.
type Waited struct {
	Wait  Wait
	From  time.Time
	Until time.Time // zero: it lasts
}

// maxWaits bounds what an entry keeps of what it waited for between two runs: the later waits are kept.
const maxWaits = 8

// shortestWait is the length from which a wait that is over counts: nearly all take microseconds.
const shortestWait = time.Millisecond

// isDue notes that an entry becomes due. An entry that is due already goes on waiting.
func (e *Entry) isDue() {
	if e.state == Delayed || e.state == Running {
		e.asked, e.blocked = time.Now(), nil
	}
}

// noteWait notes a new value of wait. A wait for a worker is not kept: an entry waits for one whenever it waits for
// nothing else.
func (e *Entry) noteWait() {
	last := len(e.blocked) - 1
	lasts := last >= 0 && e.blocked[last].Until.IsZero()
	switch {
	case lasts && e.blocked[last].Wait == e.wait, !lasts && e.wait.Kind == WaitWorker:
		return
	case lasts:
		e.blocked[last].Until = time.Now()
	}
	if e.wait.Kind == WaitWorker {
		return
	}
	if len(e.blocked) == maxWaits {
		e.blocked = append(e.blocked[:0], e.blocked[1:]...)
	}
	e.blocked = append(e.blocked, Waited{Wait: e.wait, From: time.Now()})
}

// waits returns what an entry has waited for since it became due, in order.
func (e *Entry) waits() []Waited {
	if e.state == Delayed {
		return nil
	}
	var all []Waited
	add := func(w Waited) {
		if w.Until.IsZero() || w.Until.Sub(w.From) >= shortestWait {
			all = append(all, w)
		}
	}
	from := e.asked // of the wait for a worker
	for _, b := range e.blocked {
		add(Waited{From: from, Until: b.From})
		add(b)
		from = b.Until
	}
	switch {
	case e.state == Running:
		add(Waited{From: from, Until: e.began})
	case !from.IsZero():
		add(Waited{From: from})
	}
	return all
}

// TakeWaits returns when a running entry became due, and what it has waited for since then. The worker that has the
// entry calls it once in a run.
func (t *Table) TakeWaits(e *Entry) (due time.Time, waits []Waited) {
	t.mu.Lock()
	defer t.mu.Unlock()
	waits, e.blocked = e.waits(), nil
	return e.asked, waits
}

// Kept is a value that a worker keeps with its entry.
type Kept interface {
	// Drop is called at the end of the entry, or of the term.
	// It must neither block nor call the Table.
	Drop()
}

// Keep keeps a value with an entry until the entry ends, instead of the value before; nil is none. Only the worker that
// has the entry may call it.
func (t *Table) Keep(e *Entry, value Kept) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.kept = value
}

// Kept returns the value that is kept with an entry, nil for none, for the worker that has the entry.
func (e *Entry) Kept() Kept { return e.kept }

// History returns the value that is kept with the entry of a key, and what the entry has waited for since it became
// due: nothing if it is Delayed, runs, or does not exist.
func (t *Table) History(key Key) (kept Kept, waits []Waited) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[key]
	switch {
	case e == nil:
		return nil, nil
	case e.state == Running:
		return e.kept, nil
	}
	return e.kept, e.waits()
}
