package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// probeEvery is the period of the startup probe in deploy/install.yaml: the kubelet finds a new replica ready after that. A replica of the hub
// waits for one second for others that start with it, and takes no lease meanwhile.
const probeEvery = 2 * time.Second

// rolloutCase replaces two replicas one after the other under load. The floor has no replicas.
func rolloutCase() Case {
	return Case{
		Name: "rollout", About: "4 drivers, 10 volumes each, attached and detached again and again; while both replicas are replaced",
		Drivers: 4, Nodes: 20, Volumes: 500, Each: 10, Latency: latency,
		Rounds: 3, Sidecars: []string{sidecarName, tunedSidecarName}, SidecarRounds: 1, alone: true, replicas: true, booked: true, turn: turnOfRollout,
		Targets: []Target{AtMost(RolloutGap, 2), Exactly(AttachCalls, 1), Exactly(DetachCalls, 1), Exactly(Violations, 0)},
	}
}

// turnOfRollout replaces two replicas as a Deployment with maxSurge 1 and maxUnavailable 0 does, while it attaches and detaches all
// volumes again and again. It fails if one of them is not attached or detached in the end.
func turnOfRollout(ctx context.Context, s *stage, first *attacher) (figures Figures, err error) {
	grown := []*attacher{}
	another := func(ctx context.Context) (*attacher, error) {
		probed := time.After(probeEvery)
		a, err := first.another(ctx)
		grown = append(grown, a)
		if err != nil {
			return a, err
		}
		select {
		case <-probed:
		case <-ctx.Done():
		}
		return a, context.Cause(ctx)
	}
	defer func() {
		for _, a := range grown {
			err = errors.Join(err, a.stop(context.WithoutCancel(ctx)))
		}
	}()
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
	before, made := violations(s.Drivers), countCalls(s.Drivers)
	began := time.Now()
	var w waves
	group, inGroup := errgroup.WithContext(ctx)
	over := make(chan struct{})
	group.Go(func() error {
		defer close(over)
		if _, err := another(inGroup); err != nil {
			return err
		}
		// The ReplicaSet controller ends the newer one first. The Deployment controller makes a new one meanwhile.
		ending, inEnding := errgroup.WithContext(inGroup)
		ending.Go(func() error { return second.exit(inEnding) })
		if _, err := another(inGroup); err != nil {
			return errors.Join(err, ending.Wait())
		}
		return errors.Join(first.exit(inGroup), ending.Wait())
	})
	group.Go(func() (err error) {
		w, err = s.wavesUntil(inGroup, over)
		return err
	})
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("replace the replicas under load: %w", err)
	}
	longest := longestGap(s.Drivers, began)
	all := countCalls(s.Drivers).minus(made)
	s.say("%s: %d attaches in %.1f s, longest gap between calls of a driver %s", first.name, len(w.attached), time.Since(began).Seconds(), duration(longest.Seconds()))
	slices.Sort(w.attached)
	t := timing{took: w.attached}
	return Figures{
		RolloutGap: longest.Seconds(), RolloutAttaches: float64(len(w.attached)), AttachP99: t.percentile(99), AttachMax: t.percentile(100),
		AttachCalls: float64(all.publish) / float64(len(w.attached)), DetachCalls: float64(all.unpublish) / float64(len(w.attached)),
		Violations: float64(violations(s.Drivers) - before),
	}, nil
}

// waves are bursts, one after the other.
type waves struct {
	attached []time.Duration // how long each attach took
}

// wavesUntil attaches and detaches all volumes again and again. The last burst begins after over is closed, so it reaches all
// drivers after that.
func (s *stage) wavesUntil(ctx context.Context, over <-chan struct{}) (waves, error) {
	var w waves
	for last := false; !last; {
		select {
		case <-over:
			last = true
		default:
		}
		t, err := s.change(ctx, "attached", isAttached, s.volumes, s.ask)
		if err != nil {
			return w, err
		}
		w.attached = append(w.attached, t.took...)
		if _, err := s.change(ctx, "gone", isGone, s.volumes, s.release); err != nil {
			return w, err
		}
	}
	return w, nil
}

// longestGap returns the longest time in which one of the drivers got no call to attach or detach, from a time until its last call.
func longestGap(drivers []*testbed.Driver, since time.Time) time.Duration {
	var longest time.Duration
	for _, d := range drivers {
		longest = max(longest, gap(d.Backend.Books().Calls, since))
	}
	return longest
}

// gap is longestGap of one driver.
func gap(calls []fakecsi.Call, since time.Time) time.Duration {
	begun := []time.Time{since}
	for _, call := range calls {
		attaches := call.Method == fakecsi.ControllerPublishVolume || call.Method == fakecsi.ControllerUnpublishVolume
		if attaches && call.Start.After(since) {
			begun = append(begun, call.Start)
		}
	}
	slices.SortFunc(begun, time.Time.Compare) // the books have them in the order of their ends
	var longest time.Duration
	for i, at := range begun[1:] {
		longest = max(longest, at.Sub(begun[i]))
	}
	return longest
}

// violations counts what a correct attacher never does, such as two calls at once for one volume.
func violations(drivers []*testbed.Driver) int {
	count := 0
	for _, d := range drivers {
		count += d.Backend.Books().ViolationCount
	}
	return count
}
