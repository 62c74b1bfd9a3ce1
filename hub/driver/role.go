package driver

import (
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/observe"
	"github.com/csi-attach-hub/csi-attach-hub/hub/view"
	"github.com/csi-attach-hub/csi-attach-hub/internal/panics"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// Leases decides which process works for a driver: *lease.Leases.
type Leases interface {
	view.Leases
	// Hold competes for a lease until ctx ends, and blocks until it has released the lease.
	Hold(ctx context.Context, c lease.Claim) error
}

// role is what this process does for a driver: work for it while it has the lease, watch another attacher, or
// nothing.
type role struct {
	mode  registry.Mode
	lease lease.Name // whose holder may work for the driver; zero if nobody works for it, or without leases
}

// pausedBy is the reason of a pause.
const pausedBy = "paused by `mode: paused` in drivers.yaml"

// roleOf returns the role that this process should have.
func (m *Manager) roleOf(s state) role {
	r := role{mode: s.spec.Mode}
	if r.mode == registry.ModeActive && m.options.Leases != nil {
		r.lease = m.options.LeaseOf(s.spec)
	}
	return r
}

// run keeps the driver connected and takes its role, until ctx ends and all work has drained. An error is a
// fault of this program: a panic.
func (m *Manager) run(ctx context.Context) error {
	outer := ctx
	ctx, fail := context.WithCancelCause(outer)
	defer fail(nil)
	// Work that drains still needs the connection.
	connected, disconnect := context.WithCancel(context.WithoutCancel(ctx))
	var loops sync.WaitGroup
	defer loops.Wait()
	defer disconnect()
	panics.Go(&loops, fail, func() { m.stayConnected(connected) })
	for ctx.Err() == nil {
		if err := m.takeRole(ctx, m.roleOf(m.get())); err != nil {
			return err
		}
	}
	if outer.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

// takeRole carries out a role until the driver's role changes, or ctx ends.
func (m *Manager) takeRole(ctx context.Context, r role) error {
	ctx, cancel := m.while(ctx, func(s state) bool { return m.roleOf(s) == r })
	defer cancel()
	competes := r.lease.Name != ""
	m.update(func(s *state) {
		s.role, s.draining, s.waiting = r, "", ""
		if competes {
			s.waiting = "not tried yet"
		}
	})
	switch {
	case r.mode == registry.ModePaused:
		m.logger.Info("Driver is paused", "reason", pausedBy)
		<-ctx.Done()
		return nil
	case r.mode == registry.ModeObserve:
		m.observe(ctx)
		return nil
	case !competes:
		return m.lead(ctx, lease.Always())
	}
	return m.options.Leases.Hold(ctx, lease.Claim{
		Driver:  m.name,
		Lease:   r.lease,
		Reach:   m.reach,
		Serve:   m.lead,
		Waiting: func(reason string) { m.update(func(s *state) { s.waiting = reason }) },
	})
}

// reach returns whether the driver can be called from here, as lease.Claim asks.
func (m *Manager) reach() (r lease.Reach, changed <-chan struct{}, again time.Duration) {
	s, changed := m.watch()
	r, again = s.reach(m.options.LeaseDuration, time.Now())
	return r, changed, again
}

// lead works for the driver for one term of its lease. The term ends when stop ends, the lease is lost, or the
// leader releases the lease because it cannot call the driver.
func (m *Manager) lead(stop context.Context, term *lease.Term) error {
	if !term.Continues() {
		// Other processes may have worked for the driver since. The objects say where its volumes are,
		// the memory of this process does not.
		m.Table.Forget(time.Now())
	}
	l := m.newLifecycle(term)
	m.update(func(s *state) { s.leader, s.waiting, s.draining = l, "", "" })
	defer m.update(func(s *state) {
		s.leader = nil
		if m.options.Leases != nil {
			s.waiting, s.draining = "releasing the lease", ""
		}
	})
	defer m.logger.V(2).Info("Stopped serving driver")
	return l.run(klog.NewContext(stop, m.logger))
}

// observe watches another attacher work for the driver until ctx ends.
func (m *Manager) observe(ctx context.Context) {
	m.options.View.Lease(m.get().spec) // from now on the lease is watched: the status says who holds it
	m.logger.Info("Observing driver: the hub attaches, detaches and writes nothing")
	o := &observe.Observer{
		Cluster: m.options.Cluster,
		Decider: func() (attach.Driver, bool) { return m.Decider(), m.get().session != nil },
		Metrics: m.metrics,
	}
	m.update(func(s *state) { s.observer = o })
	defer m.update(func(s *state) { s.observer = nil })
	m.options.Routes.Open(m.name, o)
	defer m.options.Routes.Close(m.name, o)
	o.LookAtAll()
	for ctx.Err() == nil {
		m.options.View.Ask(ctx, m.Look()) // the health of the driver needs the answers
		sleep(ctx, askEvery)
	}
}

// askEvery is the pause between two rounds of requests for the checklist of a driver that is observed.
const askEvery = time.Minute
