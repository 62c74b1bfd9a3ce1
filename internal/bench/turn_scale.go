package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// turn measures a start, calls one after the other, a burst, a restart of the API server, and takeovers.
func (c *scale) turn(ctx context.Context, s *stage, a *attacher) (Figures, error) {
	figures, err := turnOfDispatch(ctx, s, a)
	if err != nil {
		return nil, err
	}
	maps.Copy(figures, c.slopes)
	err = s.profiled(ctx, a, func() error {
		b, err := s.burst(ctx, a, s.volumes)
		if err == nil {
			maps.Copy(figures, b.figures())
			s.say("%s: %.0f attaches and %.0f detaches per second", a.name, b.attach.perSecond(), b.detach.perSecond())
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	u, err := a.usage(ctx)
	if err != nil {
		return nil, err
	}
	figures.addEnd(u)
	if err := a.whileRuns(ctx, func(ctx context.Context) error { return s.relist(ctx, a, figures) }); err != nil {
		return nil, fmt.Errorf("restart the API server: %w", err)
	}
	return figures, s.takeovers(ctx, a, figures)
}

// relist restarts the API server, which ends all watches, and attaches a volume of each driver. A watch cannot go on where it
// ended: the new API server does not know what happened before its start.
func (s *stage) relist(ctx context.Context, a *attacher, figures Figures) error {
	for _, p := range a.processes {
		if err := resetPeak(p.PID()); err != nil {
			return err
		}
	}
	made := countCalls(s.Drivers)
	s.Plane.Kill()
	if err := s.Plane.StartAgain(ctx); err != nil {
		return err
	}
	began := time.Now() // it is ready, and informers may list again since
	if _, err := s.change(ctx, "attached", isAttached, s.warmUp, s.ask); err != nil {
		return err
	}
	figures[RelistRecovered] = time.Since(began).Seconds()
	pause(ctx, quietFor) // PersistentVolumes may be listed longer
	after, err := countRequests(ctx, s.Plane)
	if err != nil {
		return err
	}
	// The new API server counts from zero.
	asked := requestsOf(testbed.RequestCounts{}, after)
	figures[RelistCalls] = float64(countCalls(s.Drivers).minus(made).all() - len(s.warmUp))
	figures[RelistWrites] = float64(asked.writes - attachWrites*len(s.warmUp))
	figures[RelistReads] = float64(asked.reads)
	if _, err := s.change(ctx, "gone", isGone, s.warmUp, s.release); err != nil {
		return err
	}
	u, err := a.usage(ctx)
	figures.add(RelistPeak, u.peak)
	s.say("%s: attaches %s after a restart of the API server, memory at most %s", a.name, duration(figures[RelistRecovered]), megabytes(u.peak))
	return err
}

// attachWrites is how many writes an attach takes if the PersistentVolume has its finalizer.
const attachWrites = 2

// takeovers measures how long a standby takes to lead all drivers after the leader was killed, and after another one was
// stopped.
func (s *stage) takeovers(ctx context.Context, first *attacher, figures Figures) (err error) {
	before, err := countRequests(ctx, s.Plane)
	if err != nil {
		return err
	}
	made := countCalls(s.Drivers)
	second, err := s.standby(ctx, "second")
	if err != nil {
		return err
	}
	began := time.Now()
	if err := first.kill(ctx); err != nil {
		return err
	}
	if err := second.WaitReady(ctx, len(s.Drivers)); err != nil {
		return err
	}
	figures[TakeoverCrash] = time.Since(began).Seconds()
	third, err := s.standby(ctx, "third")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, third.Stop(context.WithoutCancel(ctx), stopGrace)) }()
	began = time.Now()
	stopped := make(chan error, 1)
	go func() { stopped <- second.Stop(ctx, stopGrace) }()
	err = third.WaitReady(ctx, len(s.Drivers))
	figures[TakeoverStop] = time.Since(began).Seconds()
	if err := errors.Join(err, <-stopped); err != nil {
		return err
	}
	pause(ctx, quietFor)
	after, err := countRequests(ctx, s.Plane)
	figures[TakeoverCalls] = float64(countCalls(s.Drivers).minus(made).all())
	figures[TakeoverWrites] = float64(requestsOf(before, after).writes)
	s.say("all drivers have a leader %s after a crash, %s after a stop", duration(figures[TakeoverCrash]), duration(figures[TakeoverStop]))
	return err
}

// standby starts a hub beside another one, and blocks until it has connected to all drivers and the two have shared
// them out.
func (s *stage) standby(ctx context.Context, name string) (*testbed.Hub, error) {
	hub, err := s.StartHub(ctx, testbed.HubOptions{Name: name, Args: []string{"--profiling"}})
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeoutCause(ctx, readyFor, fmt.Errorf("not connected %v after its start", readyFor))
	defer cancel()
	err = testbed.WhileRunning(bounded, []*testbed.Process{hub.Process}, func(ctx context.Context) error {
		for {
			families, err := testbed.Metrics(ctx, hub.URL+"/metrics")
			if err == nil && testbed.SumMetric(families["attach_hub_driver_up"]) == float64(len(s.Drivers)) {
				pause(ctx, quietFor)
				return nil
			}
			if pause(ctx, readyEvery); ctx.Err() != nil {
				return fmt.Errorf("wait for a standby: %w", errors.Join(context.Cause(ctx), err))
			}
		}
	})
	return hub, err
}

// resetPeak makes the kernel measure the peak of a process's resident memory anew.
func resetPeak(pid int) error {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		return fmt.Errorf("measure the peak of process %d anew: %w", pid, err)
	}
	return nil
}
