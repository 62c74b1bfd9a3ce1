package hub

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// periodic is work that a leader does now and then. Between two runs it needs no goroutine: most drivers
// have nothing to do most of the time.
type periodic struct {
	// pause is the time from the begin to the first run, and from the end of each run to the next, by
	// the settings of the moment.
	pause func(registry.Settings) time.Duration
	run   func(context.Context)

	running atomic.Bool
	since   time.Time // the begin, or the end of the last run; a run owns it
}

// startIfDue starts the work in a goroutine of the group if it is due. It returns the time until it is due,
// never while it runs: the manager's state counts as changed when it ends.
func (l *leader) startIfDue(ctx context.Context, p *periodic, fail context.CancelCauseFunc, group *sync.WaitGroup) time.Duration {
	if p.running.Load() {
		return never
	}
	if left := p.pause(l.settings()) - time.Since(p.since); left > 0 {
		return left
	}
	p.running.Store(true)
	goSafely(group, fail, func() {
		p.run(ctx)
		p.since = time.Now()
		p.running.Store(false)
		l.wake()
	})
	return never
}
