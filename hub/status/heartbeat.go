package status

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Heartbeat watches one thing that should move. Its methods may be called from any
// goroutine and cost next to nothing. A nil Heartbeat watches nothing.
type Heartbeat struct {
	health *Health
	check  *check
	limit  time.Duration
	born   time.Time
	last   atomic.Int64 // the last beat, in nanoseconds since born; negative: at rest
}

// Heartbeat makes the process live only while Beat is called at least every limit, from
// now until Stop. After a pause of the whole process (SIGSTOP, a frozen machine) it fails
// until the next Beat: probes must be given more than one try.
func (h *Health) Heartbeat(name string, limit time.Duration) *Heartbeat {
	if h == nil {
		return nil
	}
	b := &Heartbeat{health: h, limit: limit, born: time.Now()}
	b.check = &check{name, b.late}
	h.addLive(b.check)
	return b
}

// Beat says that it moves.
func (b *Heartbeat) Beat() {
	if b != nil {
		b.last.Store(int64(time.Since(b.born)))
	}
}

// Rest says that it has nothing to do: no Beat is due until after the next one.
func (b *Heartbeat) Rest() {
	if b != nil {
		b.last.Store(-1)
	}
}

// Stop ends the watch: it is not to move any more.
func (b *Heartbeat) Stop() {
	if b != nil {
		b.health.removeLive(b.check)
	}
}

// late returns an error if a beat is overdue.
func (b *Heartbeat) late() error {
	last := time.Duration(b.last.Load())
	if last < 0 {
		return nil
	}
	if silent := time.Since(b.born) - last; silent > b.limit {
		return fmt.Errorf("has not moved for %s, expected every %s", silent.Round(time.Millisecond), b.limit)
	}
	return nil
}
