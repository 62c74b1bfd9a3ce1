package main

import (
	"context"
	"fmt"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/progress"
)

// phaseFor bounds the time of attaching, and of detaching: csi-attacher with its default flags
// attaches about 17 volumes per second.
const phaseFor = 10 * time.Minute

// phase is the measurement of attaching, or detaching, all volumes of a burst.
type phase struct {
	timing
	requests
	calls
	plane planeCPU
}

// burst is the measurement of attaching volumes, all at once, and of detaching them.
type burst struct {
	attach, detach phase
	full           usage // while all volumes are attached
}

// burst attaches and detaches all volumes and blocks until that is done.
func (s *stage) burst(ctx context.Context, a *attacher, volumes []volume) (b burst, err error) {
	err = a.whileRuns(ctx, func(ctx context.Context) error {
		if b.attach, err = s.attach(ctx, volumes); err != nil {
			return err
		}
		if b.full, err = a.quietUsage(); err != nil {
			return err
		}
		b.detach, err = s.detach(ctx, volumes)
		return err
	})
	return b, err
}

func (s *stage) attach(ctx context.Context, volumes []volume) (phase, error) {
	return s.phase(ctx, "attached", isAttached, volumes, s.ask)
}

func (s *stage) detach(ctx context.Context, volumes []volume) (phase, error) {
	return s.phase(ctx, "gone", isGone, volumes, s.release)
}

func (s *stage) ask(ctx context.Context, v volume) error     { return v.ask(ctx, s.client()) }
func (s *stage) release(ctx context.Context, v volume) error { return v.release(ctx, s.client()) }

// phase changes all VolumeAttachments and counts the requests and calls that it took.
func (s *stage) phase(ctx context.Context, what string, reaches goal, volumes []volume, change func(context.Context, volume) error) (phase, error) {
	before, err := countRequests(ctx, s.Plane)
	if err != nil {
		return phase{}, err
	}
	made := countCalls(s.Drivers)
	// Counting requests costs the API server much, so that is left out.
	took, err := readPlaneCPU(s.Plane.Process().PID())
	if err != nil {
		return phase{}, err
	}
	p := phase{}
	if p.timing, err = s.change(ctx, what, reaches, volumes, change); err != nil {
		return phase{}, err
	}
	plane, err := readPlaneCPU(s.Plane.Process().PID())
	if err != nil {
		return phase{}, err
	}
	p.plane = plane.minus(took)
	after, err := countRequests(ctx, s.Plane)
	if err != nil {
		return phase{}, err
	}
	p.requests, p.calls = requestsOf(before, after), countCalls(s.Drivers).minus(made)
	return p, nil
}

// change changes all VolumeAttachments and blocks until each has reached its goal.
func (s *stage) change(ctx context.Context, what string, reaches goal, volumes []volume, change func(context.Context, volume) error) (timing, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, phaseFor, fmt.Errorf("not %s after %v", what, phaseFor))
	defer cancel()
	s.clock.reset(reaches, len(volumes))
	defer s.narrator.follow(what)()
	err := each(ctx, volumes, func(ctx context.Context, v volume) error {
		s.clock.begin(v.name)
		return change(ctx, v)
	})
	if err != nil {
		return timing{}, err
	}
	return s.clock.wait(ctx, what)
}

// changeText returns a progress line of a change that goes on for some time.
func changeText(there, want int, what string, elapsed time.Duration) string {
	return fmt.Sprintf("%d of %d volumes are %s, %.0f per second, %s", there, want, what,
		float64(there)/elapsed.Seconds(), progress.Left(elapsed, float64(there), float64(want)))
}

// perOperation returns a count divided by the volumes of the phase.
func (p phase) perOperation(n int) float64 { return float64(n) / float64(len(p.took)) }
