package main

import (
	"context"
	"errors"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

const (
	// The drivers of the hubs that are compared with a hub for all drivers.
	fewDrivers  = 10
	someDrivers = 100
	// fleetSettles is how long a new fleet is left alone: its first renewals and probes have come by then.
	fleetSettles = 6 * time.Second
	// fleetFor is a whole number of retry periods (5 s) of leases.
	fleetFor = 20 * time.Second
)

// idle is the case of many drivers without work. A hub for all of them is compared with hubs for fewer.
type idle struct{ few, some idleUsage }

func idleCase() Case {
	c := &idle{}
	return Case{
		Name: "idle", About: "what drivers without work cost: 500 drivers, 100 and 10",
		Drivers: 500, Nodes: 1, Rounds: 3, alone: true, prepare: c.prepare, turn: c.turn,
		Targets: []target{atMost(GoroutinesPerDriver, 12), atMost(ResidentPerDriver, 0.5e6)},
	}
}

// prepare measures the hubs for fewer drivers.
func (c *idle) prepare(ctx context.Context, s *stage) (err error) {
	for drivers, u := range map[int]*idleUsage{fewDrivers: &c.few, min(someDrivers, len(s.Drivers)): &c.some} {
		a, err := s.startHub(ctx, s.Drivers[:drivers])
		if err == nil {
			*u, err = usageOfIdle(ctx, a)
		}
		if err := errors.Join(err, a.stop(context.WithoutCancel(ctx))); err != nil {
			return err
		}
	}
	return nil
}

// turn measures the hub for all drivers.
func (c *idle) turn(ctx context.Context, s *stage, a *attacher) (Figures, error) {
	figures := Figures{FleetReady: a.ready.Seconds()}
	if err := s.watchFleet(ctx, a, figures); err != nil {
		return nil, err
	}
	many, err := usageOfIdle(ctx, a)
	figures[ResidentIdle], figures[ResidentSome], figures[ResidentMany] = c.few.resident, c.some.resident, many.resident
	more := float64(len(s.Drivers) - fewDrivers)
	figures[GoroutinesPerDriver] = float64(many.Goroutines-c.few.Goroutines) / more
	figures[ResidentPerDriver] = (many.resident - c.few.resident) / more
	return figures, err
}

// watchFleet measures what a hub without work costs beside its memory: writes of leases, CPU time of the hub and of the control plane.
func (s *stage) watchFleet(ctx context.Context, a *attacher, figures Figures) error {
	if err := pause(ctx, fleetSettles); err != nil {
		return err
	}
	requests, err := s.Plane.Requests(ctx)
	if err != nil {
		return err
	}
	hub := a.usage().cpu
	plane, err := planeCPU(s.Plane.Process().PID())
	if err != nil {
		return err
	}
	began := time.Now()
	if err := pause(ctx, fleetFor); err != nil {
		return err
	}
	elapsed, hubAfter := time.Since(began), a.usage().cpu
	planeAfter, err := planeCPU(s.Plane.Process().PID())
	if err != nil {
		return err
	}
	after, err := s.Plane.Requests(ctx)
	figures[LeaseWrites] = float64(after.Since(requests).Sum(func(k testbed.RequestKey) bool { return k.Resource == "leases" && testbed.IsWrite(k) })) / elapsed.Seconds()
	figures[IdleCPU], figures[IdlePlaneCPU] = (hubAfter-hub)/elapsed.Minutes(), (planeAfter-plane)/elapsed.Minutes()
	return err
}

// idleUsage is what a hub without work takes.
type idleUsage struct {
	usage
	testbed.Vitals
}

// usageOfIdle returns what a hub without work takes after a garbage collection.
func usageOfIdle(ctx context.Context, a *attacher) (u idleUsage, err error) {
	// The second collection frees the objects whose finalizers ran after the first one.
	for range 2 {
		if u.Vitals, err = testbed.ReadVitals(ctx, a.urls[0]); err != nil {
			return u, err
		}
	}
	u.usage = a.usage()
	return u, nil
}
