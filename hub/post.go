package hub

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// Leases says which process works for a driver: *lease.Leases.
type Leases interface {
	// Hold competes for a lease until ctx ends, and blocks until what it held has been
	// let go.
	Hold(ctx context.Context, c lease.Claim) error
	// Holder returns who holds a lease, as last seen; it does not ask.
	Holder(n lease.Name) (lease.Holder, bool)
}

// post is this process' place beside one driver: it stays connected, and works for the
// driver, watches another one work or stands by, as mode and lease say.
type post struct {
	hub        *Hub
	name       string
	desired    *desired
	condition  *condition
	connection *connection
	intruder   *intruder
	halt       *halt
	table      *volume.Table
	tally      *tally
	absence    *absence
	current    atomic.Pointer[driver]   // while it is worked for
	observer   atomic.Pointer[observer] // while it is observed
	logger     klog.Logger
}

// run stands by the driver until ctx ends and what was begun has drained. An error is a
// fault of this program: a panic.
func (p *post) run(ctx context.Context) error {
	outer := ctx
	ctx, fail := context.WithCancelCause(outer)
	defer fail(nil)
	// What drains still needs the connection.
	connected, disconnect := context.WithCancel(context.WithoutCancel(ctx))
	var loops sync.WaitGroup
	defer loops.Wait()
	defer disconnect()
	goSafely(&loops, fail, func() { p.connection.run(connected) })
	for ctx.Err() == nil {
		current, _ := p.duty()
		if err := p.perform(ctx, current); err != nil {
			return err
		}
	}
	if outer.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

// perform does a duty until it has changed or ctx ends.
func (p *post) perform(ctx context.Context, current duty) error {
	ctx, cancel := p.whileIs(ctx, current)
	defer cancel()
	p.condition.change(time.Now(), func(parts *conditionParts) {
		parts.draining, parts.paused = "", current.pausedBy
	})
	switch current.mode {
	case registry.ModePaused:
		p.condition.wait("", time.Now())
		p.logger.Info("The driver is paused", "why", current.pausedBy)
		<-ctx.Done()
		return nil
	case registry.ModeObserve:
		p.condition.wait("", time.Now())
		return p.observe(ctx)
	}
	if p.hub.options.Leases == nil {
		return p.work(ctx, lease.Always())
	}
	p.condition.wait("not tried yet", time.Now())
	return p.hub.options.Leases.Hold(ctx, lease.Claim{
		Driver:    p.name,
		Lease:     current.lease,
		Reachable: p.absence.able,
		Serve:     p.work,
		Waiting:   func(reason string) { p.condition.wait(reason, time.Now()) },
	})
}

// work serves the driver for one term of its lease, until stop ends, or until the driver
// has been away for so long that others are to be let try.
func (p *post) work(stop context.Context, term *lease.Term) error {
	if !term.Continues() {
		// Others have worked for the driver since. Where they have left its volumes is in
		// the objects, not in what this process remembers.
		p.table.Forget(time.Now())
	}
	now := time.Now()
	p.condition.wait("", now)
	p.condition.drain("", now)
	stop = klog.NewContext(stop, p.logger)
	d := p.newDriver(term)
	p.current.Store(d)
	err := d.run(stop)
	p.current.Store(nil)
	now = time.Now()
	if p.hub.options.Leases != nil {
		p.condition.wait("the lease is being let go", now)
		p.condition.drain("", now)
	}
	p.logger.V(2).Info("Not serving the driver any more")
	return err
}

func (p *post) newDriver(term *lease.Term) *driver {
	value, _ := p.desired.get()
	d := &driver{
		name:       p.name,
		desired:    p.desired,
		condition:  p.condition,
		connection: p.connection,
		finalizer:  p.table.Finalizer,
		kube:       p.hub.options.Kube,
		cluster:    p.hub.cluster,
		routes:     p.hub.routes,
		windDown:   p.hub.windDown,
		grace:      p.hub.options.Grace,
		term:       term,
		table:      p.table,
		overlay:    p.hub.overlay(p.logger, p.name),
		budget:     rate.NewLimiter(rate.Inf, 0),
		// A write of a process that was stopped in the middle of it is over before
		// another one may take the lease.
		writeTimeout: p.hub.options.LeaseDuration / 3,
		intruder:     p.intruder,
		halt:         p.halt,
		tally:        p.tally,
		absence:      p.absence,
		events:       events{p.hub.options.Events},
		logger:       p.logger,
	}
	d.guards = &attach.VolumeGuards{Newest: d.overlay.Volume}
	d.table.Begin(value.Workers)
	d.setLimits(value)
	return d
}
