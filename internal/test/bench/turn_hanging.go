package main

import (
	"context"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
)

// hanging is the least number of calls that hang: as many of the hub's default workers as attaches
// always get.
const hanging = 10

// turnOfHanging measures how long all drivers but the first one take to attach their volumes, by turns
// while the first one has no work and while it hangs with all its volumes waiting.
func turnOfHanging(ctx context.Context, s *stage, a *attacher) (Figures, error) {
	if _, err := s.burst(ctx, a, s.warmUp); err != nil {
		return nil, err
	}
	var counted []Figures
	for i := range a.bursts {
		var p99, p50 [2]float64 // without, with
		for j := range 2 {
			which := (i + j) % 2 // by turns the first one
			beside := nobody
			if which == 1 {
				beside = neighbour{begin: s.hang, end: s.letGo}
			}
			t, err := s.burstOfOthers(ctx, a, beside, len(s.volumes))
			if err != nil {
				return nil, err
			}
			p50[which], p99[which] = t.percentile(50), t.percentile(99)
		}
		counted = append(counted, Figures{
			OthersP50: p50[0], OthersP50Hanging: p50[1], OthersP99: p99[0], OthersP99Hanging: p99[1], HangingRatio: p99[1] / p99[0],
		})
		s.say("%s: p99 of the others %s, while one hangs %s", a.name, duration(p99[0]), duration(p99[1]))
	}
	return medians(counted), nil
}

// hang lets publishes of the first driver hang, and blocks until enough of them do.
func (s *stage) hang(ctx context.Context, volumes []volume) error {
	backend := s.Drivers[0].Backend
	if err := backend.Set(fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume}}}); err != nil {
		return err
	}
	if err := each(ctx, volumes, s.ask); err != nil {
		return err
	}
	return backend.Wait(ctx, func(b fakecsi.Books) bool { return b.AttachInFlight.Now >= hanging })
}

// letGo releases the publishes of the first driver, and blocks until its volumes were attached and
// are gone.
func (s *stage) letGo(ctx context.Context, volumes []volume) error {
	if err := s.Drivers[0].Backend.Set(fakecsi.Knobs{ReleaseAll: true}); err != nil {
		return err
	}
	return s.attachedThenGone(ctx, volumes)
}
