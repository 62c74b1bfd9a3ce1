package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
)

const (
	// endAfter is the part of a burst that is attached when the leading replica ends: one of so many.
	endAfter = 5
	// endEvery is the time between two looks at that.
	endEvery = 2 * time.Millisecond
	// probeEvery is the period of the startup probe in deploy/install.yaml: the kubelet finds a new replica ready after that. A replica of the hub
	// waits for one second for others that start with it, and takes no lease meanwhile.
	probeEvery = 2 * time.Second
)

// turnOfFailover measures how long the rest of a burst takes after the end of the leading one of two replicas: after SIGKILL, and then
// after SIGTERM.
func turnOfFailover(ctx context.Context, s *stage, first *attacher) (figures Figures, err error) {
	before := s.countCalls().violations
	figures = Figures{}
	older := first
	for _, end := range []struct {
		with        syscall.Signal
		last, calls Figure
	}{{syscall.SIGKILL, CrashLast, CrashCalls}, {syscall.SIGTERM, ExitLast, ExitCalls}} {
		newer, err := s.another(ctx)
		if err != nil {
			return nil, err
		}
		if _, err := s.burst(ctx, older, s.warmUp); err != nil {
			return nil, err
		}
		p, err := s.pairOf(ctx, older, newer)
		if err != nil {
			return nil, err
		}
		if figures[end.last], figures[end.calls], err = s.failover(ctx, p, end.with); err != nil {
			return nil, fmt.Errorf("end the leading replica under a burst: %w", err)
		}
		s.say("%s: all attached %s after %v", first.name, duration(figures[end.last]), end.with)
		older = p.other
	}
	figures[Violations] = float64(s.countCalls().violations - before)
	return figures, nil
}

// failover attaches all volumes, ends the leading replica when a part of them is attached, and detaches all. It returns the seconds from
// the end until the last volume is attached, and the calls per attach.
func (s *stage) failover(ctx context.Context, p pair, with syscall.Signal) (last, calls float64, err error) {
	made := s.countCalls()
	var ended time.Time
	var t timing
	group, inGroup := errgroup.WithContext(ctx)
	done := make(chan struct{})
	group.Go(func() (err error) {
		defer close(done)
		t, err = s.attach(inGroup, s.volumes)
		return err
	})
	group.Go(func() error {
		for {
			select {
			case <-time.After(endEvery):
			case <-done: // an error of its own, or too fast
				return errors.New("all volumes were attached before the leading replica ended")
			}
			if have, want := s.clock.progress(); want == len(s.volumes) && have >= want/endAfter && have < want {
				ended = time.Now()
				return p.leading.end(inGroup, with)
			}
		}
	})
	if err := group.Wait(); err != nil {
		return 0, 0, err
	}
	calls = float64(s.countCalls().minus(made).all()) / float64(len(s.volumes))
	_, err = s.detach(ctx, s.volumes)
	return t.last.Sub(ended).Seconds(), calls, err
}

// turnOfRollout replaces two replicas as a Deployment with maxSurge 1 and maxUnavailable 0 does, while it attaches and detaches all
// volumes again and again. It fails if one of them is not attached or detached in the end.
func turnOfRollout(ctx context.Context, s *stage, first *attacher) (figures Figures, err error) {
	another := func(ctx context.Context) (*attacher, error) {
		probed := time.After(probeEvery)
		a, err := s.another(ctx)
		if err == nil {
			<-probed
		}
		return a, err
	}
	second, err := another(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := s.burst(ctx, first, s.warmUp); err != nil {
		return nil, err
	}
	if _, err := s.pairOf(ctx, first, second); err != nil {
		return nil, err
	}
	made, began := s.countCalls(), time.Now()
	var all timing
	group, inGroup := errgroup.WithContext(ctx)
	over := make(chan struct{})
	group.Go(func() error {
		defer close(over)
		if _, err := another(inGroup); err != nil {
			return err
		}
		// The ReplicaSet controller ends the newer one first. The Deployment controller makes a new one meanwhile.
		ending, inEnding := errgroup.WithContext(inGroup)
		ending.Go(func() error { return second.end(inEnding, syscall.SIGTERM) })
		_, err := another(inGroup)
		if err = errors.Join(err, ending.Wait()); err != nil {
			return err
		}
		return first.end(inGroup, syscall.SIGTERM)
	})
	group.Go(func() error {
		// The last burst begins after all that, so it reaches all drivers after it.
		for last := false; !last; {
			select {
			case <-over:
				last = true
			default:
			}
			t, err := s.attach(inGroup, s.volumes)
			if err != nil {
				return err
			}
			all.took = append(all.took, t.took...)
			if _, err := s.detach(inGroup, s.volumes); err != nil {
				return err
			}
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("replace the replicas under load: %w", err)
	}
	slices.Sort(all.took)
	done := s.countCalls().minus(made)
	figures = Figures{
		AttachP99: all.percentile(99), Violations: float64(done.violations),
		AttachCalls: float64(done.publish) / float64(len(all.took)), DetachCalls: float64(done.unpublish) / float64(len(all.took)),
	}
	for _, d := range s.Drivers {
		figures[RolloutGap] = max(figures[RolloutGap], gap(d.Backend.Books().Calls, began).Seconds())
	}
	s.say("%s: %d attaches, longest gap between calls of a driver %s", first.name, len(all.took), duration(figures[RolloutGap]))
	return figures, nil
}

// gap returns the longest time in which a driver got no call to attach or detach, from a time until its last call.
func gap(calls []fakecsi.Call, since time.Time) (longest time.Duration) {
	begun := []time.Time{since}
	for _, call := range calls {
		attaches := call.Method == fakecsi.ControllerPublishVolume || call.Method == fakecsi.ControllerUnpublishVolume
		if attaches && call.Start.After(since) {
			begun = append(begun, call.Start)
		}
	}
	slices.SortFunc(begun, time.Time.Compare) // the books have them in the order of their ends
	for i, at := range begun[1:] {
		longest = max(longest, at.Sub(begun[i]))
	}
	return longest
}
