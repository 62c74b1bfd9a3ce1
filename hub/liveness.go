package hub

import (
	"errors"
	"fmt"
	"maps"
	"time"
)

const (
	// wedgedAfter is how long a queue may leave work alone that it could start: it looks
	// within milliseconds, and a machine that is short of everything within seconds.
	wedgedAfter = time.Minute
	// syncLimit is how long the caches may take to fill: far longer than the largest
	// cluster needs. While the API server is away a restart does no harm.
	syncLimit = 10 * time.Minute
)

// checkSync is a check of liveness: caches that never fill are not worth waiting for.
func checkSync(began time.Time, synced func() bool) func() error {
	return func() error {
		if waited := time.Since(began); !synced() && waited > syncLimit {
			return fmt.Errorf("the caches of the cluster's objects are not filled after %s", waited.Round(time.Second))
		}
		return nil
	}
}

// checkMoving is a check of liveness: no driver's queue leaves work alone. That a driver
// itself does not answer is no reason to end the process.
func (h *Hub) checkMoving() error {
	h.mu.Lock()
	engaged := maps.Clone(h.engaged)
	h.mu.Unlock()
	var wedged []error
	for name, e := range engaged {
		if p := e.post.Load(); p != nil {
			if d := p.current.Load(); d != nil && d.queue.wedged(time.Now()) {
				wedged = append(wedged, fmt.Errorf("work for %s has not been looked at for %s", name, wedgedAfter))
			}
		}
	}
	return errors.Join(wedged...)
}

// wedged says whether there is work that could start, and nobody looks for it.
func (q *queue) wedged(now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended { // what runs still may take as long as its grace
		return false
	}
	due := len(q.delayed) > 0 && now.Sub(q.delayed[0].due) > wedgedAfter
	return !q.looked.IsZero() && now.Sub(q.looked) > wedgedAfter && (due || q.lanes.next(now) != nil)
}
