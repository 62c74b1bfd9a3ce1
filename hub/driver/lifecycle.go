package driver

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/reconcile"
	"github.com/csi-attach-hub/csi-attach-hub/internal/panics"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// lifecycle is the work for a driver during one term of its lease: open its route, and add items for all work that the caches show
// once the driver can be called; work while the driver can be called; drain.
type lifecycle struct {
	driver *Manager
	work   *reconcile.Worker
	fail   func(error) // takes a panic, and ends the run of the Manager

	gate   sync.Mutex        // held while the queue is opened or shut, and when the term begins to drain
	opened reconcile.Session // the last session for which the queue was opened, nil if it was never open; guarded by gate

	workers sync.WaitGroup // the goroutines of the queue, of items and of the periodic work
}

// newLifecycle begins a term, and opens its route: also while the driver cannot be called, only this process may know the volume of a
// VolumeAttachment that vanishes. The route is open before stayConnected may have the term look at the caches.
func (m *Manager) newLifecycle(term *lease.Term, fail func(error)) *lifecycle {
	l := &lifecycle{driver: m, fail: fail, work: reconcile.New(m.Options, term)}
	m.options.Routes.Open(m.Driver, l.work)
	return l
}

// run works for the driver until ctx ends. Then calls in flight have the grace to end, and run cancels the
// others; when the lease is lost, it cancels all at once. When it returns, all its goroutines have ended.
func (l *lifecycle) run(ctx context.Context, term *lease.Term) {
	intake, end := context.WithCancel(ctx)
	defer end()
	// Calls outlive the intake: after a cancelled call it is not known whether the volume is attached.
	calls, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	defer context.AfterFunc(term.Lost(), cut)()
	panics.Go(&l.workers, l.fail, func() {
		l.driver.Queue.Run(intake, func(e *queue.Item) {
			panics.Go(&l.workers, l.fail, func() { l.work.Work(calls, e) })
		})
	})
	panics.Contain(l.fail, func() {
		l.connectionChanged()
		now := time.Now()
		l.attend(intake, end,
			&periodic{since: now, pause: l.work.Drift.Pause, run: l.work.Drift.Check},
			&periodic{since: now, pause: func(s registry.Settings) time.Duration { return min(s.StuckAfter, overdueEvery) }, run: l.work.ReportOverdue},
			&periodic{since: now, pause: func(registry.Settings) time.Duration { return resyncEvery }, run: func(context.Context) { l.work.Resync() }})
	})
	// Whatever happens: no goroutine of this term works on beside the next term.
	panics.Contain(l.fail, func() {
		l.driver.options.Routes.Close(l.driver.Driver, l.work)
		l.gate.Lock()
		defer l.gate.Unlock()
		l.driver.update(func(s *state) { s.draining = "calls in flight may end" })
	})
	end()
	defer time.AfterFunc(l.driver.options.Grace, cut).Stop()
	l.workers.Wait()
	panics.Contain(l.fail, l.driver.Table.Close)
	panics.Contain(l.work.CannotDrain, func() { l.work.DetachDangling(calls) })
}

const (
	// resyncEvery is the interval of the search for work that no event has led to.
	resyncEvery = 5 * time.Minute
	// overdueEvery is the longest interval of ReportOverdue.
	overdueEvery = time.Minute
	// busyPause is how long attend waits for calls in flight before it tries again to release the lease.
	busyPause = time.Second
)

// periodic is work that is done at intervals. It has no goroutine between two runs: there may be many
// drivers, and most are idle most of the time.
type periodic struct {
	// pause returns the time from the start of the term to the first run, and from the end of each run to
	// the next.
	pause func(registry.Settings) time.Duration
	run   func(context.Context)

	running atomic.Bool
	since   time.Time // start of the term, or end of the last run; belongs to a run while it lasts
}

// startIfDue starts the work in a goroutine of l.workers if it is due. It returns when to ask again.
func (p *periodic) startIfDue(ctx context.Context, s registry.Settings, l *lifecycle) time.Duration {
	if p.running.Load() {
		return busyPause
	}
	if left := p.pause(s) - time.Since(p.since); left > 0 {
		return left
	}
	p.running.Store(true)
	panics.Go(&l.workers, l.fail, func() {
		p.run(ctx)
		p.since = time.Now()
		p.running.Store(false)
	})
	return busyPause
}

// attend follows the settings and starts the periodic work until ctx ends.
//
// If the driver cannot be called from here, other replicas know that, and a replica that can call it gets the
// lease. A csi-attacher on standby announces nothing. So attend releases the lease once, while no call is in
// flight. If nobody takes it, the next term keeps it until giveUpAfter: a driver that comes back is called at once,
// and a driver that comes and goes does not pass the lease around. Then attend releases it for good, as a
// csi-attacher that was not there before may wait for it.
func (l *lifecycle) attend(ctx context.Context, end context.CancelFunc, all ...*periodic) {
	var limits registry.Settings // of the last setLimits
	l.driver.await(ctx, func(s state) (time.Duration, bool) {
		if s.spec.Settings != limits {
			limits = s.spec.Settings
			l.work.SetLimits(limits)
		}
		r, again := s.reach(l.driver.options.LeaseDuration, time.Now())
		if r == lease.Unreached || r == lease.Away && !s.leaseOffered {
			if !l.driver.Queue.IsCalling() {
				l.driver.Logger.V(2).Info("Driver is unreachable, releasing its lease")
				l.driver.update(func(s *state) { s.leaseOffered = true })
				end()
			}
			again = busyPause
		}
		for _, p := range all {
			again = min(again, p.startIfDue(ctx, s.spec.Settings, l))
		}
		return again, false
	})
}

// connectionChanged opens the lanes if the driver can be called, and shuts them if not. The capabilities may
// have changed since the last session, so for each session it adds items for all work that the caches show. For a session
// that it knows it changes nothing: an attach that the driver has refused keeps its backoff. So it may be called twice, as when a
// term begins while the driver connects.
func (l *lifecycle) connectionChanged() {
	l.gate.Lock()
	defer l.gate.Unlock()
	switch s := l.driver.get(); {
	case s.leader != l || s.draining != "": // the queue does not open any more
	case s.up:
		if l.opened != s.session {
			l.work.LookAtAll()
		}
		l.opened = s.session
		l.driver.Queue.Open()
	case l.opened != nil:
		l.driver.Queue.Shut()
	}
}
