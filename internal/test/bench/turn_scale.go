package main

import (
	"context"
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
	maps.Copy(figures, c.prepared)
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

// attachWrites and detachWrites are how many writes an attach and a detach take if the PersistentVolume has its finalizer.
const (
	attachWrites = 2
	detachWrites = 1
)

// resetPeak makes the kernel measure the peak of a process's resident memory anew.
func resetPeak(pid int) error {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		return fmt.Errorf("measure the peak of process %d anew: %w", pid, err)
	}
	return nil
}
