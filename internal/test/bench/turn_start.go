package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// quietFor is how long turnOfStart watches a new competitor for calls and writes that it should not
// make.
const quietFor = 5 * time.Second

// attachForGood attaches all volumes for all turns. The baseline does it: it is the fastest, and
// leaves the same objects as the hub.
func attachForGood(ctx context.Context, s *stage) (err error) {
	s.say("attaching %d volumes", len(s.volumes))
	a, err := baselineCompetitor().start(ctx, s)
	defer func() { err = errors.Join(err, a.stop(context.WithoutCancel(ctx))) }()
	if err != nil {
		return err
	}
	return a.whileRuns(ctx, func(ctx context.Context) error {
		attached, err := s.attach(ctx, s.volumes)
		if err == nil {
			s.say("attached %d volumes in %.1f s", len(s.volumes), attached.elapsed.Seconds())
		}
		return err
	})
}

// turnOfStart measures what a start takes.
func turnOfStart(ctx context.Context, s *stage, a *attacher) (Figures, error) {
	figures := Figures{}
	if !a.sidecars { // it serves its metrics before it has filled its caches
		figures[Ready] = a.ready.Seconds()
	}
	u, err := a.usage(ctx)
	if err != nil {
		return nil, err
	}
	if !a.sidecars {
		figures[ReadyCPU] = u.cpu
	}
	quiet := quietFor
	if a.sidecars {
		quiet *= 4 // they fill their caches meanwhile
	}
	err = a.whileRuns(ctx, func(ctx context.Context) error {
		select {
		case <-time.After(quiet):
			return nil
		case <-ctx.Done():
			return fmt.Errorf("watch it for %v: %w", quiet, context.Cause(ctx))
		}
	})
	if err != nil {
		return nil, err
	}
	if u, err = a.usage(ctx); err != nil {
		return nil, err
	}
	after, err := countRequests(ctx, s.Plane)
	if err != nil {
		return nil, err
	}
	asked, made := requestsOf(a.before.requests, after), countCalls(s.Drivers).minus(a.before.calls)
	figures[StartCalls] = float64(made.all())
	figures[StartWrites] = float64(asked.writes)
	figures[StartReads] = float64(asked.reads)
	figures[OtherWrites] = float64(asked.others)
	figures.addIdle(u)
	figures.add(ResidentPeak, u.peak)
	s.say("%s: ready after %s", a.name, duration(a.ready.Seconds()))
	return figures, nil
}
