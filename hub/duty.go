package hub

import (
	"cmp"
	"context"

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
}

// duty returns what there is to do now. It changes at the latest when one of the channels
// is closed.
func (p *post) duty() (duty, [2]<-chan struct{}) {
	value, desired := p.desired.get()
	halt, halted := p.halt.get()
	current := dutyFor(value.Mode, halt)
	if current.mode == registry.ModeActive && p.hub.options.Leases != nil {
		current.lease = p.hub.leaseOf(value)
	}
	return current, [...]<-chan struct{}{desired, halted}
}

// dutyFor decides.
func dutyFor(mode registry.Mode, halt string) duty {
	current := duty{mode: mode}
	switch {
	case mode == registry.ModePaused:
		current.pausedBy = "its mode is paused"
	case mode == registry.ModeActive && halt != "":
		current.mode, current.pausedBy = registry.ModePaused, halt
	}
	return current
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
		for {
			next, changes := p.duty()
			if next != current {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-changes[0]:
			case <-changes[1]:
			}
		}
	}()
	return ctx, func() { cancel(); <-ended }
}
