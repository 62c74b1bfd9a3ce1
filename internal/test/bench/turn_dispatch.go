package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/statistics"
)

// dispatches is how many volumes of each driver are attached one after the other.
const dispatches = 20

// turnOfDispatch measures a start, and then the time from a request until the call to the driver, while
// it attaches and detaches volumes one after the other.
func turnOfDispatch(ctx context.Context, s *stage, a *attacher) (Figures, error) {
	figures, err := turnOfStart(ctx, s, a)
	if err != nil {
		return nil, err
	}
	// The books have the calls of earlier turns too.
	began := time.Now()
	asked := map[string]time.Time{}
	volumes := spread("other", s.names, s.Nodes, dispatches)
	err = a.whileRuns(ctx, func(ctx context.Context) error {
		for _, v := range volumes {
			one := []volume{v}
			asked[v.name] = time.Now()
			if _, err := s.change(ctx, "attached", isAttached, one, s.ask); err != nil {
				return err
			}
			if _, err := s.change(ctx, "gone", isGone, one, s.release); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	u, err := a.usage(ctx)
	if err != nil {
		return nil, err
	}
	waited, err := s.dispatched(began, asked)
	if err != nil {
		return nil, err
	}
	figures[DispatchP50] = statistics.Percentile(waited, 50).Seconds()
	figures[DispatchP99] = statistics.Percentile(waited, 99).Seconds()
	figures.addEnd(u)
	s.say("%s: dispatched after %s", a.name, duration(figures[DispatchP50]))
	return figures, nil
}

// dispatched returns the times from a request until the call to the driver, sorted.
func (s *stage) dispatched(since time.Time, asked map[string]time.Time) ([]time.Duration, error) {
	var waited []time.Duration
	for _, d := range s.Drivers {
		for _, call := range d.Backend.Books().CallsOf(fakecsi.ControllerPublishVolume, "") {
			if at, ok := asked[call.Volume]; ok && call.Start.After(since) {
				waited = append(waited, call.Start.Sub(at))
			}
		}
	}
	if len(waited) != len(asked) {
		return nil, fmt.Errorf("%d volumes were attached with %d calls", len(asked), len(waited))
	}
	slices.Sort(waited)
	return waited, nil
}
