package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

const hubName = "hub"

// hubCompetitor is csi-attach-hub as users run it: one process, leases, metrics.
func hubCompetitor() competitor {
	return competitor{name: hubName, start: func(ctx context.Context, s *stage) (*attacher, error) {
		return startHub(ctx, s, s.Drivers)
	}}
}

// startHub starts the hub for some of the drivers and blocks until it is connected to all of them
// and holds their leases. It sets workers and drift.interval if the case does; all other settings are the defaults.
// env are further environment variables of it.
func startHub(ctx context.Context, s *stage, drivers []*testbed.Driver, env ...string) (*attacher, error) {
	a := &attacher{name: hubName}
	a.another = func(ctx context.Context) (*attacher, error) { return startReplica(ctx, s) }
	var defaults []string
	if s.c.Workers > 0 {
		defaults = append(defaults, fmt.Sprintf("workers: %d", s.c.Workers))
	}
	if s.c.Drift > 0 {
		defaults = append(defaults, fmt.Sprintf("drift: {interval: %s}", s.c.Drift))
	}
	var settings func(*testbed.Driver) string
	if s.c.proxied {
		var err error
		if settings, err = startProxies(ctx, s, a, drivers); err != nil {
			return a, err
		}
	}
	if err := s.WriteConfig(drivers, "{"+strings.Join(defaults, ", ")+"}", settings); err != nil {
		return a, err
	}
	kubeconfig, err := s.kubeconfig(ctx, hubNamespace, hubAccount)
	if err != nil {
		return a, err
	}
	o := testbed.HubOptions{Args: []string{"--profiling"}, Env: env, Kubeconfig: kubeconfig}
	if s.c.fair {
		o.Args = append(o.Args, "--leader-election-namespace="+hubNamespace)
	}
	hub, err := s.StartHub(ctx, o)
	if err != nil {
		return a, err
	}
	a.add(hub.Process, hub.URL)
	return a, hub.WaitReady(ctx, len(drivers))
}

// startReplica starts a further replica of the hub, and blocks until it is ready.
func startReplica(ctx context.Context, s *stage) (*attacher, error) {
	a := &attacher{name: hubName}
	hub, err := s.World.StartHub(ctx, testbed.HubOptions{Args: []string{"--profiling"}})
	if err != nil {
		return a, err
	}
	a.add(hub.Process, hub.URL)
	return a, a.wait(ctx, func(url string) error {
		return testbed.Get(ctx, url+"/readyz", func(io.Reader) error { return nil })
	})
}
