package hub

import (
	"cmp"
	"context"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// duty is what this process has to do for a driver, as far as that does not change
// while it is being done.
type duty struct {
	mode registry.Mode
	// pausedBy says why the driver is paused; empty if it is not.
	pausedBy string
	// lease is whose holder may work for the driver.
	lease lease.Name
	// reserve: the driver cannot be called from here, so that others should have it.
	reserve bool
}

// duty returns what there is to do now. It changes at the latest when one of the channels
// is closed, or after the time that is returned, if that is not 0.
func (p *post) duty(now time.Time) (duty, [3]<-chan struct{}, time.Duration) {
	value, desired := p.desired.get()
	halt, halted := p.halt.get()
	up, since, connection := p.connection.isUp()
	current, again := dutyFor(value.Mode, halt, up, now.Sub(since), p.hub.options.LeaseDuration)
	if current.mode == registry.ModeActive && p.hub.options.Leases != nil {
		current.lease = p.hub.leaseOf(value)
	}
	return current, [...]<-chan struct{}{desired, halted, connection}, again
}

// dutyFor decides. A driver that has just gone away is mostly back in a moment: it is
// held for some time, the patience. Without leases that is 0. One that could never be
// called from here is no reason to take it from those who can: sinceUp is far longer then.
func dutyFor(mode registry.Mode, halt string, up bool, sinceUp, patience time.Duration) (current duty, again time.Duration) {
	current.mode = mode
	switch {
	case mode == registry.ModePaused:
		current.pausedBy = "its mode is paused"
	case mode == registry.ModeActive && halt != "":
		current.mode, current.pausedBy = registry.ModePaused, halt
	}
	if current.mode != registry.ModeActive || patience == 0 || up {
		return current, 0
	}
	if sinceUp < patience {
		return current, patience - sinceUp
	}
	current.reserve = true
	return current, 0
}

// leaseOf returns the lease of a driver.
func (h *Hub) leaseOf(d registry.Driver) lease.Name {
	of := d.LeaseOf()
	return lease.Name{Namespace: cmp.Or(of.Namespace, h.options.LeaseNamespace), Name: of.Name}
}

// whileIs returns a context that ends with ctx, or when the duty is another one.
func (p *post) whileIs(ctx context.Context, current duty) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer cancel()
		timer := time.NewTimer(0)
		defer timer.Stop()
		for {
			next, changes, again := p.duty(time.Now())
			if next != current {
				return
			}
			var due <-chan time.Time
			if again > 0 {
				timer.Reset(again)
				due = timer.C
			}
			select {
			case <-ctx.Done():
				return
			case <-changes[0]:
			case <-changes[1]:
			case <-changes[2]:
			case <-due:
			}
		}
	}()
	return ctx, func() { cancel(); <-ended }
}
