package bench

import (
	"context"
	"errors"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// fewDrivers is with how many drivers the hub is started to be compared with all.
const fewDrivers = 10

// turnOfIdling compares a hub that has all drivers with one that has few.
func turnOfIdling(ctx context.Context, s *stage, all *attacher) (figures Figures, err error) {
	many, err := idle(ctx, all)
	if err != nil {
		return nil, err
	}
	// Its leases are free when it has ended.
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

// idle is what a hub takes that has nothing to do, without its garbage.
func idle(ctx context.Context, a *attacher) (usage, error) {
	var vitals testbed.Vitals
	// The second collection frees what the first one found to be finalized.
	for range 2 {
		var err error
		if vitals, err = testbed.ReadVitals(ctx, a.urls[0]); err != nil {
			return usage{}, err
		}
	}
	u, err := a.usage(ctx)
	// Among those that the metrics count are some that gather the metrics, more of them
	// with more drivers.
	u.goroutines = float64(vitals.Goroutines)
	return u, err
}
