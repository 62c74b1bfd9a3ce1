package bench

import (
	"context"
	"errors"
	"io"
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
	few, err := startHub(ctx, s, s.drivers[:fewDrivers])
	defer func() { err = errors.Join(err, few.stop(context.WithoutCancel(ctx))) }()
	if err != nil {
		return nil, err
	}
	base, err := idle(ctx, few)
	if err != nil {
		return nil, err
	}
	more := float64(len(s.drivers) - fewDrivers)
	return Figures{
		GoroutinesIdle: base.goroutines, HeapIdle: base.heap, ResidentIdle: base.resident,
		GoroutinesPerDriver: (many.goroutines - base.goroutines) / more,
		HeapPerDriver:       (many.heap - base.heap) / more,
		ResidentPerDriver:   (many.resident - base.resident) / more,
	}, nil
}

// idle is what a hub takes that has nothing to do, without its garbage.
func idle(ctx context.Context, a *attacher) (usage, error) {
	// The second collection frees what the first one found to be finalized.
	for range 2 {
		if err := a.fetch(ctx, "/debug/pprof/heap?gc=1", io.Discard); err != nil {
			return usage{}, err
		}
	}
	return a.usage(ctx)
}
