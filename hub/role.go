package hub

import (
	"cmp"
	"context"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/observe"
	"github.com/csi-attach-hub/csi-attach-hub/internal/panics"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// Leases decides which process works for a driver: *lease.Leases.
type Leases interface {
	// Hold competes for a lease until ctx ends, and blocks until it has released the lease.
	Hold(ctx context.Context, c lease.Claim) error
	// Holder returns the holder of a lease as last seen. It sends no request.
	Holder(n lease.Name) (lease.Holder, bool)
	// Members returns the live replicas of the hub.
	Members() []lease.Member
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
func (h *Hub) roleOf(s driverState) role {
	r := role{mode: s.spec.Mode}
	if r.mode == registry.ModeActive && h.options.Leases != nil {
		r.lease = h.leaseOf(s.spec)
	}
	return r
}

// leaseOf returns the lease of a driver.
func (h *Hub) leaseOf(d registry.Driver) lease.Name {
	of := d.LeaseOf()
	return lease.Name{Namespace: cmp.Or(of.Namespace, h.options.LeaseNamespace), Name: of.Name}
}

// run keeps the driver connected and takes its role, until ctx ends and all work has drained. An error is a
// fault of this program: a panic.
func (m *manager) run(ctx context.Context) error {
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
		if err := m.takeRole(ctx, m.hub.roleOf(m.get())); err != nil {
			return err
		}
	}
	if outer.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

// takeRole carries out a role until the driver's role changes, or ctx ends.
func (m *manager) takeRole(ctx context.Context, r role) error {
	ctx, cancel := m.while(ctx, func(s driverState) bool { return m.hub.roleOf(s) == r })
	defer cancel()
	competes := r.mode == registry.ModeActive && m.hub.options.Leases != nil
	m.update(func(s *driverState) {
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
	return m.hub.options.Leases.Hold(ctx, lease.Claim{
		Driver:  m.name,
		Lease:   r.lease,
		Reach:   m.reach,
		Serve:   m.lead,
		Waiting: func(reason string) { m.update(func(s *driverState) { s.waiting = reason }) },
	})
}

// reach returns whether the driver can be called from here, as lease.Claim asks.
func (m *manager) reach() (r lease.Reach, changed <-chan struct{}, again time.Duration) {
	s, changed := m.watch()
	r, again = s.reach(m.hub.options.LeaseDuration, time.Now())
	return r, changed, again
}

// lead works for the driver for one term of its lease. The term ends when stop ends, the lease is lost, or the
// leader releases the lease because it cannot call the driver.
func (m *manager) lead(stop context.Context, term *lease.Term) error {
	if !term.Continues() {
		// Other processes may have worked for the driver since. The objects say where its volumes are,
		// the memory of this process does not.
		m.table.Forget(time.Now())
	}
	l := m.newLeader(term)
	m.update(func(s *driverState) { s.leader, s.waiting, s.draining = l, "", "" })
	defer m.update(func(s *driverState) {
		s.leader = nil
		if m.hub.options.Leases != nil {
			s.waiting, s.draining = "releasing the lease", ""
		}
	})
	defer m.logger.V(2).Info("Stopped serving driver")
	return l.run(klog.NewContext(stop, m.logger))
}

// observe watches another attacher work for the driver until ctx ends.
func (m *manager) observe(ctx context.Context) {
	m.hub.Lease(m.get().spec) // from now on the lease is watched: the status says who holds it
	m.logger.Info("Observing driver: the hub attaches, detaches and writes nothing")
	o := &observe.Observer{
		Cluster: m.cluster,
		Decider: func() (attach.Driver, bool) { return m.decider(), m.session() != nil },
		Metrics: m.metrics,
	}
	m.update(func(s *driverState) { s.observer = o })
	defer m.update(func(s *driverState) { s.observer = nil })
	m.hub.routes.Open(m.name, observing{o})
	defer m.hub.routes.Close(m.name, observing{o})
	o.LookAtAll()
	for ctx.Err() == nil {
		m.hub.Ask(ctx, m.look()) // the health of the driver needs the answers
		sleep(ctx, askEvery)
	}
}

// askEvery is the pause between two rounds of requests for the checklist of a driver that is observed.
const askEvery = time.Minute

// observing hands the events of a driver to its Observer.
type observing struct{ *observe.Observer }

// OnAttachment implements reconcile.Listener.
func (o observing) OnAttachment(_, va *storagev1.VolumeAttachment) { o.Look(va.Name) }

// OnAttachmentGone implements reconcile.Listener.
func (o observing) OnAttachmentGone(va *storagev1.VolumeAttachment) { o.Look(va.Name) }

// RetryNow implements reconcile.Listener.
func (o observing) RetryNow(name string) { o.Look(name) }

// LookAgain implements reconcile.Listener.
func (o observing) LookAgain() { o.LookAtAll() }
