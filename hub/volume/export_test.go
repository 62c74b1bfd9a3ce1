package volume

import (
	"fmt"
	"time"
)

// Remains says what a Table still holds of entries, "" for nothing.
func (t *Table) Remains() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	waiting, running := 0, 0
	for i := range t.lanes.load {
		waiting += t.lanes.load[i].waiting.Len()
		running += t.lanes.load[i].running.Len()
	}
	if len(t.entries)+len(t.volumes)+len(t.nodes)+len(t.delayed)+waiting+running == 0 {
		return ""
	}
	return fmt.Sprintf("%d entries, %d volumes, %d nodes, %d delayed, %d waiting and %d running in lanes",
		len(t.entries), len(t.volumes), len(t.nodes), len(t.delayed), waiting, running)
}

// Published notes how the publish of a running entry has ended.
func (t *Table) Published(e *Entry, r Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.published(e, r)
}

const RepeatPauseMax = repeatPauseMax

// Step is one step of Run, and reports whether another one has to follow at once.
func (t *Table) Step(now time.Time) (e *Entry, again bool) {
	e, wait := t.take(now)
	return e, e != nil || wait <= 0
}

// TriedSince reports whether a try of an entry that does not run has failed since another entry became due.
func (t *Table) TriedSince(key, other Key) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, since := t.entries[key], t.entries[other]
	return e.state != Running && e.tried > since.came
}

const MostHeld = mostHeld
