package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// readyFor bounds the time until a replica is ready.
const readyFor = 2 * time.Minute

// another starts a further replica of the hub, which runs until the end of the turn, and blocks until it is ready, as a readiness
// probe sees it.
func (s *stage) another(ctx context.Context) (*attacher, error) {
	hub, err := s.StartHub(ctx, testbed.HubOptions{})
	if err != nil {
		return nil, err
	}
	a := &attacher{name: hubName, processes: []*testbed.Process{hub.Process}, urls: []string{hub.URL}}
	s.running = append(s.running, a)
	return a, a.wait(ctx, func(ctx context.Context, url string) error {
		return testbed.Get(ctx, url+"/readyz", func(io.Reader) error { return nil })
	})
}

// wait blocks until ready returns nil for each process, by the URL where it serves HTTP.
func (a *attacher) wait(ctx context.Context, ready func(ctx context.Context, url string) error) error {
	return a.whileRuns(ctx, func(ctx context.Context) error {
		for _, url := range a.urls {
			if err := waitUntil(ctx, a.name+" is ready", func(ctx context.Context) error { return ready(ctx, url) }); err != nil {
				return err
			}
		}
		return nil
	})
}

// waitUntil blocks until holds returns nil.
func waitUntil(ctx context.Context, what string, holds func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyFor, fmt.Errorf("not after %v", readyFor))
	defer cancel()
	return testbed.Insist(ctx, "wait until "+what, holds)
}

// leads returns the number of drivers that a replica of the hub leads.
func (a *attacher) leads(ctx context.Context) (int, error) {
	families, err := testbed.Metrics(ctx, a.urls[0]+"/metrics")
	return int(testbed.SumMetric(families["attach_hub_driver_leader"])), err
}

// pair is two running replicas of the hub: the one that leads the most drivers, and the other.
type pair struct{ leading, other *attacher }

// pairOf blocks until two replicas of the hub share all drivers.
func (s *stage) pairOf(ctx context.Context, older, newer *attacher) (pair, error) {
	p := pair{older, newer}
	err := waitUntil(ctx, "two replicas share the drivers", func(ctx context.Context) error {
		first, err := older.leads(ctx)
		if err != nil {
			return err
		}
		second, err := newer.leads(ctx)
		if err != nil {
			return err
		}
		if first == 0 || second == 0 || first+second != len(s.Drivers) {
			return fmt.Errorf("they lead %d and %d of %d drivers", first, second, len(s.Drivers))
		}
		if second > first {
			p = pair{newer, older}
		}
		return nil
	})
	return p, err
}
