package main

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
)

const (
	// The list of a hostile driver has pages of 15 MiB: its volumes have long handles.
	hostileHandle, hostileVolumes = 30 << 10, 5000
)

// hostilities are the sizes of a hostile driver's answers, by turns.
var hostilities = []struct{ publishContext, errorText int }{
	{250 << 10, 120 << 10}, // the largest that are accepted
	{319 << 10, 120 << 10}, // the largest that are read
	{15 << 20, 5 << 20},
}

// turnOfHostile measures how long all drivers but the first one take to attach their volumes, by turns while the
// first one attaches its volumes as they do, and while all its answers are as large as possible.
func turnOfHostile(ctx context.Context, s *stage, a *attacher) (Figures, error) {
	if _, err := s.burst(ctx, a, s.warmUp); err != nil {
		return nil, err
	}
	var counted []Figures
	var end usage
	for i := range a.bursts {
		var p99, p50, cpu [2]float64 // without, with
		for j := range 2 {
			which := (i + j) % 2 // by turns the first one
			beside := neighbour{begin: s.ordinary, end: s.attachedThenGone}
			if which == 1 {
				beside = s.hostile(i % len(hostilities))
			}
			before, err := a.quietUsage()
			if err != nil {
				return nil, err
			}
			t, err := s.burstOfOthers(ctx, a, beside, len(s.names)-1)
			if err != nil {
				return nil, err
			}
			if end, err = a.usage(ctx); err != nil {
				return nil, err
			}
			p50[which], p99[which], cpu[which] = t.percentile(50), t.percentile(99), end.cpu-before.cpu
		}
		counted = append(counted, Figures{
			OthersP50: p50[0], OthersP50Hostile: p50[1], OthersP99: p99[0], OthersP99Hostile: p99[1], HostileRatio: p50[1] / p50[0],
		})
		s.say("%s: p50 of the others %s, beside a hostile driver %s; CPU time %s and %s; at most %s", a.name,
			duration(p50[0]), duration(p50[1]), duration(cpu[0]), duration(cpu[1]), megabytes(end.peak))
	}
	figures := medians(counted)
	figures.addEnd(end)
	return figures, nil
}

// ordinary asks for the volumes of the first driver.
func (s *stage) ordinary(ctx context.Context, volumes []volume) error {
	return each(ctx, volumes, s.ask)
}

// hostile makes the first driver answer with as much as one of hostilities says. Half of its volumes get a publish
// context, the other half an error.
func (s *stage) hostile(which int) neighbour {
	backend, size := s.Drivers[0].Backend, hostilities[which]
	var handles []string
	for i := range hostileVolumes {
		handles = append(handles, fmt.Sprintf("%0*d", hostileHandle, i))
	}
	begin := func(ctx context.Context, volumes []volume) error {
		knobs := fakecsi.Knobs{GainVolumes: handles, PublishContext: map[string]string{"blob": strings.Repeat("x", size.publishContext)}}
		for i := 0; i < len(volumes); i += 2 {
			knobs.Fail = append(knobs.Fail, fakecsi.Fault{
				Method: fakecsi.ControllerPublishVolume, Volume: volumes[i].name, Code: codes.Internal, Message: strings.Repeat("x", size.errorText),
			})
		}
		if err := backend.Set(knobs); err != nil {
			return err
		}
		begun := backend.Books().Methods[fakecsi.ControllerPublishVolume].Begun
		if err := each(ctx, volumes, s.ask); err != nil {
			return err
		}
		return backend.Wait(ctx, func(b fakecsi.Books) bool {
			return b.Methods[fakecsi.ControllerPublishVolume].Begun >= begun+hanging
		})
	}
	end := func(ctx context.Context, volumes []volume) error {
		err := backend.Set(fakecsi.Knobs{ClearFaults: true, PublishContext: map[string]string{}, LoseVolumes: handles})
		if err != nil {
			return err
		}
		return s.attachedThenGone(ctx, volumes)
	}
	return neighbour{begin, end}
}
