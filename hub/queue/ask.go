package queue

import (
	"slices"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

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
		q.move(e, p)
		q.becomeDue(e)
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
