package testbed

import (
	"context"
	"fmt"
	"time"
)

const (
	// readyEvery is how often a hub is asked whether it is ready. An answer takes the hub some milliseconds of CPU time, so
	// a hub that takes long is asked less often: one readyShare-th of the time so far is between two questions.
	readyEvery = 20 * time.Millisecond
	readyShare = 50
	// readyTimeout is how long it may take: the caches of 100,000 PersistentVolumes are filled.
	readyTimeout = 2 * time.Minute
)

// Hub is a process of csi-attach-hub that serves HTTP.
type Hub struct {
	*Process
	URL string // without a path
}

// WaitReady blocks until the hub is connected to so many drivers and holds their leases. An
// error says how far it has come.
func (h *Hub) WaitReady(ctx context.Context, drivers int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("not ready %v after its start", readyTimeout))
	defer cancel()
	began := time.Now()
	return WhileRunning(ctx, []*Process{h.Process}, func(ctx context.Context) error {
		for want := float64(drivers); ; {
			families, err := Metrics(ctx, h.URL+"/metrics")
			up, leads := SumMetric(families["attach_hub_driver_up"]), SumMetric(families["attach_hub_driver_leader"])
			if err == nil && up == want && leads == want {
				return nil
			}
			select {
			case <-time.After(max(readyEvery, time.Since(began)/readyShare)):
			case <-ctx.Done():
				return fmt.Errorf("wait until the hub is ready: it has %.0f of %d drivers, and the leases of %.0f: %w", up, drivers, leads, context.Cause(ctx))
			}
		}
	})
}

// Vitals asks a hub that was started with --profiling.
func (h *Hub) Vitals(ctx context.Context) (Vitals, error) { return ReadVitals(ctx, h.URL) }
