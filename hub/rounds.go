package hub

import (
	"context"
	"sync"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// round is a look that is taken at the work for a driver now and then. Between two looks
// it costs no goroutine: most drivers have nothing to do most of the time.
type round struct {
	// pause is how long after the end of the last look, or after the begin, the next one
	// is due, by the settings of the moment.
	pause func(registry.Settings) time.Duration
	look  func(context.Context)

	since time.Time // the end of the last look, or the begin
	busy  bool      // a look is being taken
}

// left is how long it takes until the next look is due.
func (r *round) left(s registry.Settings, now time.Time) time.Duration {
	return r.pause(s) - now.Sub(r.since)
}

// attend follows the settings and makes the rounds, until ctx ends, the lease is lost,
// which it tells, or is let go, which is a failure. The looks are taken by goroutines of
// the group.
func (d *driver) attend(ctx context.Context, group *sync.WaitGroup, rounds []*round, lost func()) {
	for _, r := range rounds {
		r.since = time.Now()
	}
	ended := make(chan *round, len(rounds)) // room for each: nobody receives at the end
	timer := time.NewTimer(0)
	defer timer.Stop()
	var known <-chan struct{} // of the settings that are in force
	d.absence.begin()
	for ctx.Err() == nil {
		value, changed := d.desired.get()
		if changed != known {
			d.setLimits(value)
			known = changed
		}
		letGo, connection, again := d.absence.look(d.leave)
		if letGo {
			d.fail(errLetGo)
			return
		}
		timer.Reset(min(again, d.makeRounds(ctx, group, rounds, value.Settings, ended)))
		select {
		case <-ctx.Done():
		case <-d.term.Lost():
			lost()
			return
		case <-changed:
		case <-connection:
		case <-timer.C:
		case r := <-ended:
			r.since, r.busy = time.Now(), false
		}
	}
}

// makeRounds begins the looks that are due, and returns when the next one is.
func (d *driver) makeRounds(ctx context.Context, group *sync.WaitGroup, rounds []*round, s registry.Settings, ended chan<- *round) time.Duration {
	next := time.Hour
	for _, r := range rounds {
		if r.busy {
			continue
		}
		if left := r.left(s, time.Now()); left > 0 {
			next = min(next, left)
			continue
		}
		r.busy = true
		goSafely(group, d.fail, func() {
			r.look(ctx)
			ended <- r
		})
	}
	return next
}
