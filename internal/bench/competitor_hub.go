package bench

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const (
	hubName = "hub"
	// readyEvery is how often a hub is asked whether it is ready.
	readyEvery = 20 * time.Millisecond
	// readyFor is how long it may take: caches of 100,000 PersistentVolumes are filled.
	readyFor = 2 * time.Minute
)

// hubCompetitor is bin/csi-attach-hub as users run it: one process, leases, metrics.
func hubCompetitor() competitor {
	return competitor{name: hubName, start: func(ctx context.Context, s *stage) (*attacher, error) {
		return startHub(ctx, s, s.drivers)
	}}
}

// startHub starts the hub for some of the drivers and blocks until it is connected to all
// of them and holds their leases.
func startHub(ctx context.Context, s *stage, drivers []*driver) (*attacher, error) {
	a := &attacher{name: hubName}
	config := s.file("drivers.yaml")
	if err := os.WriteFile(config, []byte(driversFile(drivers, s.c.Workers)), 0o644); err != nil {
		return a, fmt.Errorf("write drivers.yaml: %w", err)
	}
	if _, err := registry.ParseFile(config); err != nil {
		return a, fmt.Errorf("check the hub's drivers.yaml: %w", err)
	}
	address, err := testbed.FreeAddress(ctx)
	if err != nil {
		return a, err
	}
	p, err := testbed.StartHub(ctx, testbed.HubOptions{
		Binary: s.opts.Hub, Kubeconfig: s.plane.Kubeconfig(), Config: config, HTTPEndpoint: address,
		Args: []string{"--profiling"}, LogPath: s.file("hub.log"),
	})
	if err != nil {
		return a, err
	}
	a.processes = append(a.processes, p)
	a.metrics = append(a.metrics, "http://"+address+"/metrics")
	return a, waitHub(ctx, a, float64(len(drivers)))
}

func waitHub(ctx context.Context, a *attacher, drivers float64) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyFor, fmt.Errorf("not ready %v after its start", readyFor))
	defer cancel()
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	return a.whileRuns(ctx, func(ctx context.Context) error {
		for {
			families, err := scrape(ctx, a.metrics[0])
			up, leads := sum(families["attach_hub_driver_up"]), sum(families["attach_hub_driver_leader"])
			if err == nil && up == drivers && leads == drivers {
				return nil
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return fmt.Errorf("wait until the hub is ready: it has %.0f of %.0f drivers, and the leases of %.0f: %w", up, drivers, leads, context.Cause(ctx))
			}
		}
	})
}

// driversFile is the drivers.yaml for these drivers. All settings are the defaults but,
// where it is not 0, that of workers.
func driversFile(drivers []*driver, workers int) string {
	var b strings.Builder
	b.WriteString("apiVersion: attach-hub/v1alpha1\nkind: DriverConfig\n")
	if workers > 0 {
		fmt.Fprintf(&b, "defaults: {workers: %d}\n", workers)
	}
	b.WriteString("drivers:\n")
	for _, d := range drivers {
		fmt.Fprintf(&b, "- {name: %s, endpoint: %q}\n", d.name, d.endpoint())
	}
	return b.String()
}
