package soak

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/torture"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

const (
	// endTimeout bounds the time from the end of the load until the audit finds nothing.
	endTimeout = 2 * time.Minute
	// sayEvery is the time between two progress lines.
	sayEvery = 30 * time.Second
)

// Run starts everything, lets the hub work for the Duration, and judges. It blocks until everything
// has been stopped. Growth is in the Report and no error; a finding of the audit is an error.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	version, err := hubVersion(ctx, o.Hub)
	if err != nil {
		return nil, err
	}
	var samples []Sample
	began := time.Now()
	run := torture.Options{Seed: o.Seed, Hub: o.Hub, Dir: o.Dir, Drivers: o.Drivers, QuietWithin: endTimeout, Out: o.Out}
	outcome, err := torture.Calm(ctx, run, torture.CalmLoad{Volumes: o.Volumes, Latency: o.Latency}, func(ctx context.Context, hub *testbed.Hub) (err error) {
		fmt.Fprintf(o.Out, "%d drivers with %d volumes each, for %v; the hub is pid %d at %s\n", o.Drivers, o.Volumes, o.Duration, hub.PID(), hub.URL)
		samples, err = watch(ctx, o, hub)
		return err
	})
	if err == nil && !outcome.Held() {
		err = errors.New(outcome.String())
	}
	if err != nil {
		return nil, fmt.Errorf("soak: %w", err)
	}
	return &Report{Options: o, Version: version, Began: began, Samples: samples, Findings: Judge(samples)}, nil
}

// hubVersion asks a binary of the hub for its version.
func hubVersion(ctx context.Context, binary string) (string, error) {
	out, err := exec.CommandContext(ctx, binary, "version").Output()
	if err != nil {
		return "", fmt.Errorf("soak: ask %s for its version: %w", binary, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// watch takes samples until the Duration is over.
func watch(ctx context.Context, o Options, hub *testbed.Hub) ([]Sample, error) {
	began, said := time.Now(), time.Now()
	tick := time.NewTicker(o.Every)
	defer tick.Stop()
	var samples []Sample
	for {
		vitals, err := hub.Vitals(ctx)
		if err != nil {
			return nil, fmt.Errorf("take a sample after %v: %w", time.Since(began).Round(time.Second), err)
		}
		samples = append(samples, Sample{At: time.Since(began), Vitals: vitals})
		if time.Since(said) >= sayEvery {
			said = time.Now()
			fmt.Fprintln(o.Out, line(samples, o.Duration))
		}
		if time.Since(began) >= o.Duration && len(samples) > leastSamples {
			return samples, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
