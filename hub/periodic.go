package hub

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/panics"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// periodic is work that a leader does at intervals. It has no goroutine between two runs: there may be many
// drivers, and most are idle most of the time.
type periodic struct {
	// pause returns the time from the start of the leader to the first run, and from the end of each run to
	// the next.
	pause func(registry.Settings) time.Duration
	run   func(context.Context)

	running atomic.Bool
	since   time.Time // start of the leader, or end of the last run; belongs to a run while it lasts
}

// startIfDue starts the work in a goroutine of the group if it is due. It returns the time until the next run is
// due, or never while the work runs. At its end the run wakes the loops of the manager.
func (l *leader) startIfDue(ctx context.Context, p *periodic, fail func(error), group *sync.WaitGroup) time.Duration {
	if p.running.Load() {
		return never
	}
	if left := p.pause(l.settings()) - time.Since(p.since); left > 0 {
		return left
	}
	p.running.Store(true)
	panics.Go(group, fail, func() {
		p.run(ctx)
		p.since = time.Now()
		p.running.Store(false)
		l.wake()
	})
	return never
}

// resyncEvery is the interval of the search for work that no event has led to.
const resyncEvery = 5 * time.Minute

// resyncing returns the periodic search of the caches for work that no event has led to. It costs no request.
func (l *leader) resyncing() *periodic {
	return &periodic{
		pause: func(registry.Settings) time.Duration { return resyncEvery },
		run:   func(context.Context) { l.work.Resync() },
	}
}
