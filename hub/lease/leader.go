package lease

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/internal/panics"
)

// leader is a candidate during a term: it renews the lease, notices at once that the lease is
// lost, and hands the driver over when it is assigned to another replica.
type leader struct {
	*candidate
	term *Term
	stop context.Context // ends when Serve must return
	end  func()          // ends stop
}

// lead serves until the work has ended. The lease is still held when lead returns, unless it
// was lost. ended reports that Serve has returned without being asked to stop.
func (c *candidate) lead(ctx context.Context, t *Term) (ended bool, err error) {
	stop, end := context.WithCancel(ctx)
	l := &leader{candidate: c, term: t, stop: stop, end: end}
	// The lease is renewed until the work has ended, so for longer than ctx may last.
	held, letGo := context.WithCancel(context.WithoutCancel(ctx))
	var loops sync.WaitGroup
	var panicked atomic.Pointer[error]
	fail := func(err error) { // nothing renews the lease any more, or looks whether it is lost
		panicked.Store(&err)
		t.lose()
		end()
		letGo()
	}
	panics.Go(&loops, fail, func() { l.renew(held) })
	panics.Go(&loops, fail, func() { defer letGo(); l.supervise(held) })
	c.setTerm(t)
	// Deferred, so that nothing renews the lease after a panic of Serve.
	defer func() {
		letGo()
		loops.Wait()
		end()
		t.end()
		c.setTerm(nil)
		if p := panicked.Load(); p != nil && err == nil {
			err = *p
		}
	}()
	err = c.candidacy.Serve(stop, t)
	return stop.Err() == nil && !t.isLost(), err
}

func (c *candidate) setTerm(t *Term) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lock.term = t
}

// renewalSlots is into how many slots a retry period is divided. Renewals of one slot are sent together: each alone
// would cost more CPU time, here and in the API server.
const renewalSlots = 25

// firstRenewal returns how long after now, when a lease is acquired, it is first renewed: at the beginning of a random
// slot, after more than 0 and at most a retry period. Leases that were acquired together, as at a start with hundreds of
// drivers, are so not all renewed together ever after.
func firstRenewal(now time.Time, period time.Duration) time.Duration {
	slot := max(1, period/renewalSlots)
	return now.Add(slot + rand.N(max(1, period-slot))).Truncate(slot).Sub(now)
}

// renew renews the lease once in each retry period until ctx ends. A renewal that fails is
// tried again in the next period; supervise decides when it is too late.
func (l *leader) renew(ctx context.Context) {
	pause(ctx, firstRenewal(time.Now(), l.options.RetryPeriod))
	ticker := time.NewTicker(l.options.RetryPeriod)
	defer ticker.Stop()
	for ctx.Err() == nil {
		if err := l.lock.renew(ctx, l.term); err != nil {
			klog.FromContext(ctx).V(4).Info("Failed to renew the lease, will retry", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// supervise blocks until ctx ends or the lease is lost.
func (l *leader) supervise(ctx context.Context) {
	// A frozen machine may have stopped its timers too, so the clocks are read this often.
	period := l.options.RetryPeriod / 2
	for {
		remaining := l.options.remaining(l.term.lastRenewal().age())
		if reason := l.options.lossReason(remaining, l.observations.get(l.candidacy.Lease)); reason != "" {
			l.term.lose()
			l.end()
			klog.FromContext(ctx).Info("Lease lost, canceling calls in flight", "reason", reason)
			return
		}
		changed, again := l.updateReach(period)
		select {
		case <-ctx.Done():
			return
		case <-l.woken:
		case <-changed:
		case <-time.After(min(again, remaining, l.handOver(ctx, period))):
		}
	}
}

// handOver asks Serve to end if the driver is assigned to another replica, and returns when to
// ask again.
func (l *leader) handOver(ctx context.Context, period time.Duration) (again time.Duration) {
	if l.options.Alone || l.stop.Err() != nil {
		return period
	}
	reach, opened := l.reached()
	assigned, _, known := l.members.assignment(l.candidacy.Driver, opened)
	if !known {
		return period
	}
	stable := l.members.stable
	if !reach.counts() { // a driver that comes back may become reachable here too, a little later
		stable = l.options.RetryPeriod
	}
	now := time.Now()
	yes, at := handsOver(now, l.options.Identity, l.passedOver, assigned, stable)
	if yes {
		klog.FromContext(ctx).V(2).Info("Handing driver over to another replica", "to", assigned.owner)
		l.end()
	}
	if yes || at.IsZero() {
		return period
	}
	return at.Sub(now)
}
