package driver

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/observe"
	"github.com/csi-attach-hub/csi-attach-hub/hub/reconcile"
	"github.com/csi-attach-hub/csi-attach-hub/hub/view"
	"github.com/csi-attach-hub/csi-attach-hub/internal/panics"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// role is what this process does for a driver: work for it while it has the lease, watch another attacher, or
// nothing.
type role struct {
	mode  registry.Mode
	lease lease.Name // whose holder may work for the driver; zero if nobody works for it, or without leases
}

// Leases decides which process works for a driver: *lease.Leases.
type Leases interface {
	view.Leases
	// Hold competes for a lease until ctx ends, and blocks until it has released the lease.
	Hold(ctx context.Context, c lease.Candidacy) error
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
	ctx, cancel := context.WithCancel(ctx)
	var failed atomic.Pointer[error]
	fail := func(err error) {
		failed.CompareAndSwap(nil, &err)
		cancel()
	}
	// Work that drains still needs the connection.
	connected, disconnect := context.WithCancel(context.WithoutCancel(ctx))
	var loops sync.WaitGroup
	panics.Go(&loops, fail, func() { m.stayConnected(connected) })
	for ctx.Err() == nil {
		panics.Contain(fail, func() { m.takeRole(ctx, fail) })
	}
	disconnect()
	loops.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// takeRole carries out the driver's role until it changes, or ctx ends. fail takes a panic in the work.
func (m *Manager) takeRole(ctx context.Context, fail func(error)) {
	r := m.roleOf(m.get())
	ctx, cancel := m.while(ctx, func(s state) bool { return m.roleOf(s) == r })
	defer cancel()
	competes := r.lease.Name != ""
	m.update(func(s *state) {
		s.role, s.draining, s.waiting = r, "", ""
		if competes {
			s.waiting = notTriedYet
		}
	})
	switch {
	case r.mode == registry.ModePaused:
		<-ctx.Done()
	case r.mode == registry.ModeObserve:
		m.observe(ctx)
	case !competes:
		m.lead(ctx, lease.Always(), fail)
	default:
		if err := m.options.Leases.Hold(ctx, lease.Candidacy{
			Driver: m.Driver,
			Lease:  r.lease,
			Reach: func() (lease.Reach, <-chan struct{}, time.Duration) {
				s, changed := m.watch()
				r, again := s.reach(m.options.LeaseDuration, time.Now())
				return r, changed, again
			},
			Serve:   func(stop context.Context, term *lease.Term) error { m.lead(stop, term, fail); return nil },
			Waiting: func(reason string) { m.update(func(s *state) { s.waiting, s.draining = reason, "" }) },
		}); err != nil {
			fail(err)
		}
	}
}

// lead works for the driver for one term of its lease. The term ends when stop ends, the lease is lost, or the
// leader releases the lease because it cannot call the driver.
func (m *Manager) lead(stop context.Context, term *lease.Term, fail func(error)) {
	if !term.Continues() {
		// Other processes may have worked for the driver since. The objects say where its volumes are,
		// the memory of this process does not.
		m.Table.Forget(time.Now())
	}
	l := m.newLifecycle(term, fail)
	m.update(func(s *state) {
		s.leader, s.waiting, s.draining = l, "", ""
		r, _ := s.reach(m.options.LeaseDuration, time.Now())
		s.leaseOffered = s.leaseOffered || r < lease.JustAway // nobody has taken the lease, although it was free for its duration
	})
	defer m.update(func(s *state) {
		s.leader = nil
		if m.options.Leases != nil {
			s.draining = "releasing the lease"
		}
	})
	l.run(klog.NewContext(stop, m.Logger), term)
}

// observe watches another attacher work for the driver until ctx ends.
func (m *Manager) observe(ctx context.Context) {
	m.options.View.Lease(m.get().spec) // from now on the lease is watched: the status says who holds it
	o := &observe.Observer{
		Cluster: m.Cluster,
		Decider: func() (attach.Driver, bool) { return m.decider(), m.get().session != nil },
		Metrics: m.Metrics,
	}
	m.update(func(s *state) { s.observer = o })
	defer m.update(func(s *state) { s.observer = nil })
	m.options.Routes.Open(m.Driver, o)
	defer m.options.Routes.Close(m.Driver, o)
	o.LookAtAll()
	for ctx.Err() == nil {
		m.options.View.Ask(ctx, m.Look()) // the health of the driver needs the answers
		reconcile.Sleep(ctx, askEvery)
	}
}

// askEvery is the pause between two rounds of requests for the checklist of a driver that is observed.
const askEvery = time.Minute
