package soak

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

const (
	// lookEvery is how often a hub that starts is asked whether it is there.
	lookEvery = 100 * time.Millisecond
	// startTimeout bounds that, endTimeout how long the load may take to be detached.
	startTimeout = 2 * time.Minute
	endTimeout   = 2 * time.Minute
	// sayEvery is how often there is a line for people.
	sayEvery = 30 * time.Second
)

// Run starts everything, has the hub work for the Duration, and judges. It blocks until all has been
// stopped. Growth is no error but in the Report; that the hub or a driver did
// something wrong is one.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &stage{o: o}
	samples, err := s.play(ctx)
	if err = errors.Join(err, s.stop(context.WithoutCancel(ctx))); err != nil {
		if s.hub != nil {
			err = fmt.Errorf("%w\nthe last lines of the hub's log:\n%s", err, s.hub.LastLines(20))
		}
		return nil, fmt.Errorf("soak: %w", err)
	}
	return &Report{Options: o, Samples: samples, Findings: judge(samples)}, nil
}

// play runs the load from its begin to its end.
func (s *stage) play(ctx context.Context) ([]Sample, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel(nil)
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	if err := s.awaitHub(ctx); err != nil {
		return nil, err
	}
	fmt.Fprintf(s.o.Out, "%d drivers with %d volumes each, for %v; the hub is pid %d at %s\n", s.o.Drivers, s.o.Volumes, s.o.Duration, s.hub.PID(), s.url)
	watching.Go(func() {
		select {
		case <-s.hub.Done():
			cancel(errors.New("the hub has ended"))
		case <-ctx.Done():
		}
	})
	if err := s.load(ctx); err != nil {
		return nil, err
	}
	samples, err := s.watch(ctx)
	if err != nil {
		return nil, err
	}
	ending, stop := context.WithTimeoutCause(ctx, endTimeout, fmt.Errorf("not all is detached after %v", endTimeout))
	defer stop()
	if err := s.unload(ending); err != nil {
		return nil, err
	}
	return samples, s.check()
}

// awaitHub blocks until the hub answers.
func (s *stage) awaitHub(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		_, err := testbed.ReadVitals(ctx, s.url)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-s.hub.Done():
			return fmt.Errorf("wait for the hub: it has ended: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("wait for the hub: %w: %w", context.Cause(ctx), err)
		}
	}
}

// watch takes samples until the Duration is over.
func (s *stage) watch(ctx context.Context) ([]Sample, error) {
	began, said := time.Now(), time.Now()
	tick := time.NewTicker(s.o.Every)
	defer tick.Stop()
	var samples []Sample
	for {
		vitals, err := testbed.ReadVitals(ctx, s.url)
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return nil, fmt.Errorf("take a sample after %v: %w", time.Since(began).Round(time.Second), err)
		}
		samples = append(samples, Sample{At: time.Since(began), Vitals: vitals})
		if time.Since(said) >= sayEvery {
			said = time.Now()
			fmt.Fprintln(s.o.Out, line(samples))
		}
		if time.Since(began) >= s.o.Duration && len(samples) > leastSamples {
			return samples, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
