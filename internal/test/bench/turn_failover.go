package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// endAfter is the part of a burst that is attached when the leading replica ends: one of so many.
	endAfter = 5
	// endEvery is the time between two looks at that.
	endEvery = 2 * time.Millisecond
)

// failoverCase ends the leading one of two replicas under a burst. The floor has neither leases nor replicas. A call that a killed
// process had in flight is made again, so calls per attach may be above 1 after a crash, by the workers of the drivers at most.
func failoverCase() Case {
	return Case{
		Name: "failover", About: "4 drivers, 25 volumes each, all at once; while the leading one of two replicas is killed, and while it stops",
		Drivers: 4, Nodes: 20, Volumes: 500, Each: 25, Latency: latency,
		Rounds: 3, Sidecars: []string{sidecarName, tunedSidecarName}, SidecarRounds: 1, alone: true, replicas: true, turn: turnOfFailover,
		// A lease ends after 15 s. It is noticed at once, and the rest of the burst takes a moment.
		Targets: []Target{AtMost(CrashLast, 18), AtMost(ExitLast, 2), Exactly(ExitCalls, 1), Exactly(Violations, 0)},
	}
}

// turnOfFailover measures how long the rest of a burst takes after the end of the leading replica: after SIGKILL, and then after
// SIGTERM.
func turnOfFailover(ctx context.Context, s *stage, first *attacher) (figures Figures, err error) {
	second, err := first.another(ctx)
	defer func() { err = errors.Join(err, second.stop(context.WithoutCancel(ctx))) }()
	if err != nil {
		return nil, err
	}
	if _, err := s.burst(ctx, first, s.warmUp); err != nil {
		return nil, err
	}
	p, err := s.pairOf(ctx, first, second)
	if err != nil {
		return nil, err
	}
	crash, err := s.failover(ctx, p, p.leading.kill)
	if err != nil {
		return nil, err
	}
	third, err := first.another(ctx)
	defer func() { err = errors.Join(err, third.stop(context.WithoutCancel(ctx))) }()
	if err != nil {
		return nil, err
	}
	if p, err = s.pairOf(ctx, p.other, third); err != nil {
		return nil, err
	}
	exit, err := s.failover(ctx, p, p.leading.exit)
	if err != nil {
		return nil, err
	}
	s.say("%s: all attached %s after SIGKILL of the leading replica, %s after SIGTERM", first.name,
		duration(crash.last.Seconds()), duration(exit.last.Seconds()))
	return Figures{
		CrashLast: crash.last.Seconds(), CrashCalls: crash.calls, ExitLast: exit.last.Seconds(), ExitCalls: exit.calls,
		Violations: float64(crash.violations + exit.violations),
	}, nil
}

// failover is the measurement of a burst during which the leading replica ends.
type failover struct {
	last       time.Duration // from the end until the last volume is attached
	calls      float64       // publishes and unpublishes per attach
	violations int           // that the drivers' books count
}

// failover attaches all volumes, ends the leading replica when a part of them is attached, and detaches all.
func (s *stage) failover(ctx context.Context, p pair, end func(context.Context) error) (failover, error) {
	wrong := violations(s.Drivers)
	var attached phase
	var ended, last time.Time
	err := p.other.whileRuns(ctx, func(ctx context.Context) error {
		group, inGroup := errgroup.WithContext(ctx)
		done := make(chan struct{})
		group.Go(func() (err error) {
			defer close(done)
			attached, err = s.attach(inGroup, s.volumes)
			last = s.clock.lastReached()
			return err
		})
		group.Go(func() error {
			for {
				select {
				case <-time.After(endEvery):
				case <-done: // an error of its own, or too fast
					return errors.New("all volumes were attached before the leading replica ended")
				}
				if there, want := s.clock.progress(); want == len(s.volumes) && there >= want/endAfter && there < want {
					ended = time.Now()
					return end(inGroup)
				}
			}
		})
		if err := group.Wait(); err != nil {
			return err
		}
		_, err := s.detach(ctx, s.volumes)
		return err
	})
	if err != nil {
		return failover{}, fmt.Errorf("end the leading replica under a burst: %w", err)
	}
	return failover{last: last.Sub(ended), calls: attached.perOperation(attached.all()), violations: violations(s.Drivers) - wrong}, nil
}
