package status

import (
	"sync"
	"time"
)

const (
	// recentSlots times slotLength is the time that the page shows: a quarter of an hour.
	recentSlots = 60
	slotLength  = 15 * time.Second
)

// recent counts how a driver's operations of the last quarter of an hour ended, in slots of equal
// length. Its size never changes.
type recent struct {
	mu    sync.Mutex
	slots [recentSlots]slot // index: the number of the slot modulo recentSlots; guarded by mu
}

// slot counts what ended in one slot of time.
type slot struct {
	number  int64 // of the slot since 1970; the other fields are about this slot only
	done    int
	failed  int
	sum     time.Duration // of what the done operations took, each from its event
	slowest time.Duration // of the done operations
}

func slotNumber(t time.Time) int64 { return t.UnixNano() / int64(slotLength) }

// add counts an operation that ended now.
func (r *recent) add(now time.Time, result Result, took time.Duration) {
	number := slotNumber(now)
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.slots[number%recentSlots]
	if s.number != number {
		*s = slot{number: number}
	}
	if result != Success {
		s.failed++
		return
	}
	s.done++
	s.sum += took
	s.slowest = max(s.slowest, took)
}

// history returns the slots up to now, the oldest first.
func (r *recent) history(now time.Time) history {
	last := slotNumber(now)
	r.mu.Lock()
	defer r.mu.Unlock()
	var h history
	for i := range h {
		number := last - recentSlots + 1 + int64(i)
		if s := r.slots[number%recentSlots]; s.number == number {
			h[i] = s
		}
	}
	return h
}

// history is the last quarter of an hour of a driver, the oldest slot first.
type history [recentSlots]slot

// total returns all slots as one.
func (h *history) total() slot {
	var t slot
	for _, s := range h {
		t.done += s.done
		t.failed += s.failed
		t.sum += s.sum
		t.slowest = max(t.slowest, s.slowest)
	}
	return t
}

// mean returns the mean of the done operations, 0 if there was none.
func (s slot) mean() time.Duration {
	if s.done == 0 {
		return 0
	}
	return s.sum / time.Duration(s.done)
}
