package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const (
	// readyEvery is the time between two questions whether a replica is ready; readyFor bounds all.
	readyEvery = 20 * time.Millisecond
	readyFor   = 2 * time.Minute
)

// wait blocks until ready returns nil for each process, by the URL where it serves HTTP.
func (a *attacher) wait(ctx context.Context, ready func(url string) error) error {
	return a.whileRuns(ctx, func(ctx context.Context) error {
		for _, url := range a.urls {
			if err := waitUntil(ctx, a.name+" is ready", func() error { return ready(url) }); err != nil {
				return err
			}
		}
		return nil
	})
}

// waitUntil blocks until holds returns nil.
func waitUntil(ctx context.Context, what string, holds func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyFor, fmt.Errorf("not after %v", readyFor))
	defer cancel()
	for {
		err := holds()
		if err == nil {
			return nil
		}
		if pause(ctx, readyEvery); ctx.Err() != nil {
			return fmt.Errorf("wait until %s: %w: %w", what, context.Cause(ctx), err)
		}
	}
}

// dropLeases deletes all leases of the turns before, which nobody renews any more.
func (s *stage) dropLeases(ctx context.Context) error {
	err := s.client().CoordinationV1().Leases(metav1.NamespaceDefault).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("delete leases: %w", err)
	}
	return nil
}

// waitForHolder blocks until the holder has the leases of all drivers.
func (s *stage) waitForHolder(ctx context.Context, holder string) error {
	for _, name := range s.names {
		err := waitUntil(ctx, fmt.Sprintf("%s holds the lease of %s", holder, name), func() error {
			lease, err := s.client().CoordinationV1().Leases(metav1.NamespaceDefault).Get(ctx, registry.LeaseName(name), metav1.GetOptions{})
			if err == nil && (lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != holder) {
				err = fmt.Errorf("lease %s has another holder", lease.Name)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// leads returns the number of drivers that a replica of the hub leads.
func (a *attacher) leads(ctx context.Context) (float64, error) {
	families, err := testbed.Metrics(ctx, a.urls[0]+"/metrics")
	return testbed.SumMetric(families["attach_hub_driver_leader"]), err
}

// pair is two running replicas of one competitor: the one that leads the most drivers, and the other.
type pair struct{ leading, other *attacher }

// pairOf blocks until two replicas of the hub share all drivers. Of csi-attacher the older replica leads all.
func (s *stage) pairOf(ctx context.Context, older, newer *attacher) (pair, error) {
	p := pair{older, newer}
	if older.sidecars {
		return p, nil
	}
	err := waitUntil(ctx, "two replicas share the drivers", func() error {
		first, err := older.leads(ctx)
		if err != nil {
			return err
		}
		second, err := newer.leads(ctx)
		if err != nil {
			return err
		}
		if first == 0 || second == 0 || int(first+second) != len(s.Drivers) {
			return fmt.Errorf("they lead %.0f and %.0f of %d drivers", first, second, len(s.Drivers))
		}
		if second > first {
			p = pair{newer, older}
		}
		return nil
	})
	return p, err
}
