package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// takeovers measures how long replicas take to lead all drivers after another replica has ended. SIGKILL ends first, which
// leads all drivers, and then a replica that leads half of them. SIGTERM ends the third one, which leads half of them.
func (s *stage) takeovers(ctx context.Context, first *attacher, figures Figures) (err error) {
	var grown []*attacher
	defer func() {
		for _, a := range grown {
			err = errors.Join(err, a.stop(context.WithoutCancel(ctx)))
		}
	}()
	another := func() (*attacher, error) {
		a, err := startReplica(ctx, s)
		grown = append(grown, a)
		return a, err
	}
	before, err := countRequests(ctx, s.Plane)
	if err != nil {
		return err
	}
	made := countCalls(s.Drivers)
	second, err := another()
	if err != nil {
		return err
	}
	if err := s.takeoverOfAll(ctx, first, second, figures); err != nil {
		return fmt.Errorf("take all drivers over: %w", err)
	}
	third, err := another()
	if err != nil {
		return err
	}
	if figures[TakeoverCrash], err = s.takeoverOfHalf(ctx, second, third, second.kill); err != nil {
		return fmt.Errorf("take drivers over after a crash: %w", err)
	}
	fourth, err := another()
	if err != nil {
		return err
	}
	if figures[TakeoverStop], err = s.takeoverOfHalf(ctx, third, fourth, third.exit); err != nil {
		return fmt.Errorf("take drivers over after a stop: %w", err)
	}
	pause(ctx, quietFor)
	after, err := countRequests(ctx, s.Plane)
	figures[TakeoverCalls] = float64(countCalls(s.Drivers).minus(made).all() - 2*len(s.warmUp))
	figures[TakeoverWrites] = float64(requestsOf(before, after).writes - (attachWrites+detachWrites)*len(s.warmUp))
	s.say("all drivers have a leader %s after a crash of the leader of %.0f, %s after one of the leader of half, %s after a stop", duration(figures[TakeoverAll]),
		figures[TakeoverLed], duration(figures[TakeoverCrash]), duration(figures[TakeoverStop]))
	return err
}

// takeoverOfAll kills the only leader just after the other replica has filled its caches: a replica takes no lease in the
// second after that. It attaches a volume of each driver meanwhile, and detaches these volumes.
func (s *stage) takeoverOfAll(ctx context.Context, leader, other *attacher, figures Figures) error {
	led, err := leader.leads(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := leader.kill(ctx); err != nil {
		return err
	}
	var all time.Duration
	err = other.whileRuns(ctx, func(ctx context.Context) error {
		group, inGroup := errgroup.WithContext(ctx)
		group.Go(func() error {
			err := s.waitToLead(inGroup, other)
			all = time.Since(began)
			return err
		})
		group.Go(func() error {
			_, err := s.change(inGroup, "attached", isAttached, s.warmUp, s.ask)
			return err
		})
		if err := group.Wait(); err != nil {
			return err
		}
		figures[TakeoverAttached] = s.clock.lastReached().Sub(began).Seconds()
		_, err := s.change(ctx, "gone", isGone, s.warmUp, s.release)
		return err
	})
	figures[TakeoverLed], figures[TakeoverAll] = led, all.Seconds()
	if call, ok := firstPublish(s.Drivers, began); ok {
		figures[TakeoverCall] = call.Sub(began).Seconds()
	}
	return err
}

// takeoverOfHalf ends one of two replicas once they share the drivers, and returns the seconds until the other one leads all.
func (s *stage) takeoverOfHalf(ctx context.Context, ending, other *attacher, end func(context.Context) error) (float64, error) {
	if _, err := s.pairOf(ctx, ending, other); err != nil {
		return 0, err
	}
	began := time.Now()
	group, inGroup := errgroup.WithContext(ctx)
	group.Go(func() error { return end(inGroup) })
	err := s.waitToLead(inGroup, other)
	took := time.Since(began).Seconds()
	return took, errors.Join(err, group.Wait())
}

// waitToLead blocks until a replica of the hub leads all drivers.
func (s *stage) waitToLead(ctx context.Context, a *attacher) error {
	return a.wait(ctx, func(string) error {
		led, err := a.leads(ctx)
		if err == nil && int(led) != len(s.Drivers) {
			err = fmt.Errorf("it leads %.0f of %d drivers", led, len(s.Drivers))
		}
		return err
	})
}

// firstPublish returns when the first publish after a time began.
func firstPublish(drivers []*testbed.Driver, since time.Time) (first time.Time, ok bool) {
	for _, d := range drivers {
		for _, call := range d.Backend.Books().CallsOf(fakecsi.ControllerPublishVolume, "") {
			if call.Start.After(since) && (!ok || call.Start.Before(first)) {
				first, ok = call.Start, true
			}
		}
	}
	return first, ok
}
