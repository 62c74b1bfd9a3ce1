package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format json
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/rights"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// hubName is the name of the program.
const hubName = "csi-attach-hub"

func newHubCommand() *cobra.Command {
	c := newCommand(hubName, "Attach and detach the volumes of many CSI drivers", nil)
	c.Args = cobra.NoArgs
	c.Version = version
	c.SetVersionTemplate(versionLine())
	flags := newHubFlags(c.Flags())
	c.InitDefaultVersionFlag()
	c.RunE = func(c *cobra.Command, _ []string) error {
		s, err := flags.settings()
		if err != nil {
			return err
		}
		return runHub(c.Context(), s)
	}
	return c
}

// runHub runs the hub until ctx ends, and blocks until it has drained.
func runHub(ctx context.Context, s hubSettings) error {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	// A bad file is an error before anything is contacted.
	source, reload, err := s.source()
	if err != nil {
		return err
	}
	if err := logsapi.ValidateAndApply(s.logging, nil); err != nil {
		return fmt.Errorf("set up logging: %w", err)
	}
	defer logs.FlushLogs()
	config, err := kubeConfig(s.kubeconfig)
	if err != nil {
		return err
	}
	kube, err := newKubeClient(config)
	if err != nil {
		return err
	}
	recorder, stopRecorder, err := newRecorder(config)
	if err != nil {
		return err
	}
	defer stopRecorder()
	metrics, health := status.NewMetrics(), status.NewProbes()
	leases, err := s.newLeases(config)
	if err != nil {
		return err
	}
	options := hub.Options{Kube: kube, Grace: s.shutdownGrace, Events: recorder, Metrics: metrics, Probes: health, Rights: rightsOf(s, source.Config, kube)}
	if leases != nil {
		options.Leases, options.LeaseNamespace, options.LeaseDuration = leases, s.leases.Namespace, s.leases.Duration
	}
	h, err := hub.New(options)
	if err != nil {
		return err
	}
	r := registry.New(source, registry.NewCSIDriverSource(kube.StorageV1()))
	view := statusSource{Hub: h, source: source, registry: r, leases: leases, started: time.Now()}
	servers, err := newServers(ctx, s.http, status.Options{Source: view, Volumes: h, Metrics: metrics, Probes: health, LeaderCheck: view.leaderCheck})
	if err != nil {
		return err
	}
	s.logStart(ctx, source)
	context.AfterFunc(ctx, func() {
		klog.FromContext(ctx).Info("Stopping, waiting for calls in flight", "grace", s.shutdownGrace)
	})
	services := []func(context.Context) error{
		r.Run,
		func(ctx context.Context) error { reloadOn(ctx, hangups, reload); return nil },
		func(ctx context.Context) error {
			rights.Watch(ctx, kube, featuresOf(s, source.Config()))
			return nil
		},
	}
	if leases != nil {
		services = append(services, leases.Run)
	}
	for _, server := range servers {
		services = append(services, server.Run)
	}
	err = runWithServices(ctx, services, func(ctx context.Context) error { return h.Run(ctx, r.Updates()) })
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Stopped")
	return nil
}

// logStart logs the start of the hub, and the warnings of flags and configuration.
func (s hubSettings) logStart(ctx context.Context, source registry.ConfigSource) {
	logger := klog.FromContext(ctx)
	logger.Info("Starting", "version", version, "config", source.Name(), "drivers", len(source.Config().Drivers()), "leaderElection", s.leases.Enabled)
	for _, w := range s.warnings {
		logger.Info("Flag warning", "warning", w)
	}
	for _, w := range source.Config().Warnings() {
		w.Log(logger)
	}
}

// runWithServices runs work, and the services until work has ended: the last call in
// flight still needs leases, and probes and metrics are read until then. If a service
// fails, it cancels the context of work: a hub without leases or metrics must not go on.
// It returns the errors of all.
func runWithServices(ctx context.Context, services []func(context.Context) error, work func(context.Context) error) error {
	working, stop := context.WithCancel(ctx)
	defer stop()
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var running errgroup.Group
	for _, service := range services {
		running.Go(func() error {
			err := service(lasting)
			if err != nil {
				klog.FromContext(ctx).Error(err, "Service failed, stopping")
				stop()
			}
			return err
		})
	}
	err := work(working)
	cancel()
	return errors.Join(err, running.Wait())
}

// reloadOn calls reload for each signal until ctx ends.
func reloadOn(ctx context.Context, signals <-chan os.Signal, reload func()) {
	for {
		select {
		case <-signals:
			reload()
		case <-ctx.Done():
			return
		}
	}
}
