package main

import (
	"context"
	"errors"
	"maps"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// The drivers of the hubs that are compared with a hub for all drivers.
const (
	fewDrivers  = 10
	someDrivers = 100
)

// turnOfIdling measures a hub for all drivers, and compares it with hubs for fewer.
func turnOfIdling(ctx context.Context, s *stage, all *attacher) (figures Figures, err error) {
	figures, err = measureFleet(ctx, s, all)
	if err != nil {
		return nil, err
	}
	many, err := idle(ctx, all)
	if err != nil {
		return nil, err
	}
	if err := figures.addPages(ctx, s, all.urls[0]); err != nil {
		return nil, err
	}
	beside, err := measureReplica(ctx, s, all)
	if err != nil {
		return nil, err
	}
	maps.Copy(figures, beside)
	// It releases its leases when it ends.
	if err := all.stop(ctx); err != nil {
		return nil, err
	}
	some, err := idleOf(ctx, s, someDrivers)
	if err != nil {
		return nil, err
	}
	few, err := idleOf(ctx, s, fewDrivers)
	if err != nil {
		return nil, err
	}
	figures.addIdle(few)
	figures[ResidentSome], figures[ResidentMany] = some.resident, many.resident
	more := float64(len(s.Drivers) - fewDrivers)
	figures[GoroutinesPerDriver] = (many.goroutines - few.goroutines) / more
	figures[HeapPerDriver] = (many.heap - few.heap) / more
	figures[ResidentPerDriver] = (many.resident - few.resident) / more
	return figures, nil
}

// idleOf returns what a hub without work takes for some of the drivers.
func idleOf(ctx context.Context, s *stage, drivers int) (u usage, err error) {
	a, err := startHub(ctx, s, s.Drivers[:drivers])
	defer func() { err = errors.Join(err, a.stop(context.WithoutCancel(ctx))) }()
	if err != nil {
		return usage{}, err
	}
	return idle(ctx, a)
}

// idle returns what a hub without work takes after a garbage collection.
func idle(ctx context.Context, a *attacher) (usage, error) {
	var vitals testbed.Vitals
	// The second collection frees the objects whose finalizers ran after the first one.
	for range 2 {
		var err error
		if vitals, err = testbed.ReadVitals(ctx, a.urls[0]); err != nil {
			return usage{}, err
		}
	}
	u, err := a.usage(ctx)
	// The goroutines in the metrics include some that gather the metrics, more of them with
	// more drivers.
	u.goroutines = float64(vitals.Goroutines)
	return u, err
}
