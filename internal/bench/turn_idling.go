package bench

import (
	"context"
	"errors"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// fewDrivers is the number of drivers of the hub that is compared with one for all drivers.
const fewDrivers = 10

// turnOfIdling compares a hub for all drivers with a hub for few.
func turnOfIdling(ctx context.Context, s *stage, all *attacher) (figures Figures, err error) {
	many, err := idle(ctx, all)
	if err != nil {
		return nil, err
	}
	// It releases its leases when it ends.
	if err := all.stop(ctx); err != nil {
		return nil, err
	}
	few, err := startHub(ctx, s, s.Drivers[:fewDrivers])
	defer func() { err = errors.Join(err, few.stop(context.WithoutCancel(ctx))) }()
	if err != nil {
		return nil, err
	}
	base, err := idle(ctx, few)
	if err != nil {
		return nil, err
	}
	more := float64(len(s.Drivers) - fewDrivers)
	return Figures{
		GoroutinesIdle: base.goroutines, HeapIdle: base.heap, ResidentIdle: base.resident,
		GoroutinesPerDriver: (many.goroutines - base.goroutines) / more,
		HeapPerDriver:       (many.heap - base.heap) / more,
		ResidentPerDriver:   (many.resident - base.resident) / more,
	}, nil
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
