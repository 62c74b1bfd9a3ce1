package lease

import (
	"context"
	"time"

	"k8s.io/klog/v2"
)

// supervisor watches over a lease that is held: it says at once when the lease is
// lost, and has the work wind down when the driver belongs to another replica.
type supervisor struct {
	*hold
	campaign     *campaign
	term         *Term
	ended        <-chan struct{} // the elector has given up
	stopServing  func()
	stopElecting func()
	handing      bool // the work winds down for another replica
}

// run blocks until served is closed.
func (s *supervisor) run(ctx context.Context, served <-chan struct{}) {
	// The clocks are looked at so often because a machine that was frozen may have stopped its timers too.
	period := s.opts.RetryPeriod / 2
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		why := s.lossSeen()
		if why == "" {
			changed, asked := s.ask(period)
			timer.Reset(min(asked, max(s.lastsFor(), 0), s.handover(ctx, period)))
			select {
			case <-served:
				return
			case <-s.woken:
				continue
			case <-changed:
				continue
			case <-timer.C:
				continue
			case <-s.ended:
				why = "it could not be renewed"
			case <-s.campaign.ousted:
				why = takenByOther
			}
		}
		s.lose(ctx, why)
		<-served
		return
	}
}

const takenByOther = "somebody else took it"

// lastsFor is how long the fence stays open without another renewal.
func (s *supervisor) lastsFor() time.Duration {
	return s.opts.Duration - fenceMargin(s.opts.Duration) - s.term.unrenewed()
}

// lossSeen says why the lease is lost, if it is. The elector would find out a retry period
// later, or when its renew deadline has passed, which is reckoned from a later
// moment than the one from which others reckon.
func (s *supervisor) lossSeen() string {
	if s.lastsFor() <= 0 {
		return "it was not renewed in time"
	}
	if seen := s.observer.look(s.claim.Lease); seen.present && seen.record.holder != s.opts.Identity {
		return takenByOther
	}
	return ""
}

func (s *supervisor) lose(ctx context.Context, why string) {
	s.term.lose()
	s.stopServing()
	s.stopElecting()
	klog.FromContext(ctx).Info("Lease lost: what is in flight is cancelled", "reason", why)
}

// handover has the work wind down if it is to be done by another replica. It returns
// when to look again.
func (s *supervisor) handover(ctx context.Context, period time.Duration) time.Duration {
	if s.opts.Alone || s.handing || ctx.Err() != nil {
		return period
	}
	able, opened := s.ability()
	driver, _, ok := s.roster.whose(s.claim.Driver, opened)
	if !ok {
		return period
	}
	now := time.Now()
	stable := s.roster.stable
	if !able { // a driver that comes back may be found here a little later, and belong here
		stable = s.opts.RetryPeriod
	}
	yes, again := givesAway(now, s.opts.Identity, s.past, driver, stable)
	if yes {
		s.handing = true
		klog.FromContext(ctx).V(2).Info("Driver is handed over", "to", driver.owner)
		s.stopServing()
		return period
	}
	if again.IsZero() {
		return period
	}
	return again.Sub(now)
}
