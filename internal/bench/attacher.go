package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// competitor is something that attaches.
type competitor struct {
	name string
	// start starts it. What it returns is to be stopped, also with an error.
	start func(context.Context, *stage) (*attacher, error)
	// bursts at most in one round; 0: as many as the case has.
	bursts int
}

// attacher is a competitor that runs, as one process or as many.
type attacher struct {
	name      string
	processes []*testbed.Process
	metrics   []string // URLs, one for each process
	killed    bool     // it knows no other end than by a signal
	bursts    int      // that it is to take part in
	ready     time.Duration
	before    before
}

// before is how things stood before a competitor was started.
type before struct {
	requests testbed.RequestCounts
	calls    calls
}

// usage is what all its processes take.
func (a *attacher) usage(ctx context.Context) (usage, error) {
	var all usage
	for i, p := range a.processes {
		u, err := processUsage(p.PID())
		if err != nil {
			return usage{}, err
		}
		families, err := scrape(ctx, a.metrics[i])
		if err != nil {
			return usage{}, err
		}
		u.heap = sum(families["go_memstats_heap_inuse_bytes"])
		u.goroutines = sum(families["go_goroutines"])
		all.add(u)
	}
	return all, nil
}

// whileRuns acts with a context that ends when one of the processes does. Then that is
// the error.
func (a *attacher) whileRuns(ctx context.Context, act func(context.Context) error) error {
	ctx, fail := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer fail(nil)
	for _, p := range a.processes {
		watching.Go(func() {
			select {
			case <-p.Done():
				fail(fmt.Errorf("%s has ended, exit code %d, its last lines:\n%s", a.name, p.ExitCode(), p.LastLines(20)))
			case <-ctx.Done():
			}
		})
	}
	err := act(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		// Not everything tells why a context has ended.
		return fmt.Errorf("%w: meanwhile: %w", cause, err)
	}
	return err
}

// stop stops its processes, all at once, and blocks until they have ended.
func (a *attacher) stop(ctx context.Context) error {
	errs := make([]error, len(a.processes))
	var stopping sync.WaitGroup
	for i, p := range a.processes {
		stopping.Go(func() {
			if a.killed {
				p.Kill()
				return
			}
			errs[i] = p.Stop(ctx, stopGrace)
		})
	}
	stopping.Wait()
	return errors.Join(errs...)
}
