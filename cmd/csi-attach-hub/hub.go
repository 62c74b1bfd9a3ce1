package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format json
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/hub/view"
	"github.com/csi-attach-hub/csi-attach-hub/internal/probes"
	"github.com/csi-attach-hub/csi-attach-hub/internal/rights"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// hubName is the name of the program.
const hubName = "csi-attach-hub"

func newHubCommand() *cobra.Command {
	c := withoutArgs(hubName, "Attach and detach the volumes of many CSI drivers", nil)
	c.Version = version
	c.SetVersionTemplate(versionLine())
	flags := newHubFlags(c.Flags())
	c.InitDefaultVersionFlag()
	ofCommand := c.HelpFunc()
	c.SetHelpFunc(func(asked *cobra.Command, args []string) {
		if asked == c {
			printHelp(c, flags.groups)
		} else {
			ofCommand(asked, args)
		}
	})
	c.RunE = withExitCode(func(c *cobra.Command, _ []string) error {
		s, err := flags.settings()
		if err != nil {
			return exitError{exitUsage, err}
		}
		return runHub(c.Context(), s)
	})
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
		return exitError{exitUsage, fmt.Errorf("set up logging: %w", err)}
	}
	defer logs.FlushLogs()
	config, err := kubeConfig(s.kubeconfig)
	if err != nil {
		return exitError{exitNoAnswer, err}
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
	leases, err := s.newLeases(config)
	if err != nil {
		return err
	}
	options := hub.Options{Kube: kube, Grace: s.shutdownGrace, Events: recorder, Metrics: status.NewMetrics(), Probes: new(probes.Probes),
		Rights: rightsOf(s, source.Config, kube.AuthorizationV1())}
	var services []func(context.Context) error
	if leases != nil {
		options.Leases, options.LeaseNamespace, options.LeaseDuration = leases, s.leases.Namespace, s.leases.Duration
		services = append(services, leases.Run)
	}
	h, err := hub.New(options)
	if err != nil {
		return err
	}
	r := registry.New(source, registry.NewCSIDriverSource(kube.StorageV1()))
	view := statusSource{Hub: h, source: source, registry: r, leases: leases, started: time.Now()}
	options.Probes.Add(probes.LeaderElection, "leases", view.leaderCheck)
	shown := s.http.Options
	shown.Source, shown.Metrics, shown.Probes = view, options.Metrics, options.Probes
	for _, shown.Endpoint = range s.http.Addresses {
		server, err := status.Listen(ctx, shown)
		if err != nil { // an address in use ends the program at its start
			return err
		}
		services = append(services, server.Run)
	}
	s.logStart(ctx, source)
	context.AfterFunc(ctx, func() {
		klog.FromContext(ctx).Info("Stopping, waiting for calls in flight", "grace", s.shutdownGrace)
	})
	services = append(services, r.Run, func(ctx context.Context) error {
		for {
			select {
			case <-hangups:
				reload()
			case <-ctx.Done():
				return nil
			}
		}
	}, func(ctx context.Context) error {
		rights.Watch(ctx, kube.AuthorizationV1(), featuresOf(s, source.Config()))
		return nil
	})
	err = runWithServices(ctx, services, func(ctx context.Context) error { return h.Run(ctx, r.Updates()) })
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Stopped")
	return nil
}

// source returns the source of the configuration, and a function that makes it read the
// configuration again. It only reads the file.
func (s hubSettings) source() (source registry.ConfigSource, reload func(), err error) {
	if s.csiAddress != "" {
		driver := registry.Driver{Endpoint: s.csiAddress, Settings: s.driver, Source: "--csi-address " + s.csiAddress.Address()}
		single, err := registry.NewSingle(driver, csiclient.AskName)
		return single, func() {}, err
	}
	file, err := registry.NewFile(s.config, s.driver)
	if err == nil {
		return file, file.Reload, nil
	}
	if _, missing := os.Stat(s.config); errors.Is(missing, fs.ErrNotExist) && s.config == defaultConfig {
		err = fmt.Errorf("%w, name another folder or file with --config, or set --csi-address to replace the csi-attacher of one driver", err)
	}
	return nil, nil, ofFile(s.config, err)
}

// logStart logs the start of the hub, and the warnings of flags and configuration.
func (s hubSettings) logStart(ctx context.Context, source registry.ConfigSource) {
	logger := klog.FromContext(ctx)
	logger.Info("Starting", "version", version, "config", source.Name(), "drivers", len(source.Config().Drivers()), "leaderElection", s.leases.Enabled)
	for _, w := range s.warnings {
		logger.Info("Flag warning", "warning", w)
	}
	for _, w := range source.Config().Warnings() {
		logger.Info("Configuration warning", "warning", w.String())
	}
}

// runWithServices runs work, and the services until work has ended: the last call in
// flight still needs leases, and probes and metrics are read until then. If a service
// fails, it cancels the context of work: a hub without leases or metrics must not go on.
// It returns the errors of all.
func runWithServices(ctx context.Context, services []func(context.Context) error, work func(context.Context) error) error {
	workContext, stop := context.WithCancel(ctx)
	defer stop()
	serviceContext, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var running errgroup.Group
	for _, service := range services {
		running.Go(func() error {
			err := service(serviceContext)
			if err != nil {
				klog.FromContext(ctx).Error(err, "Service failed, stopping")
				stop()
			}
			return err
		})
	}
	err := work(workContext)
	cancel()
	return errors.Join(err, running.Wait())
}

// featuresOf returns what this process needs rights for with the configuration of its start.
func featuresOf(s hubSettings, config *registry.Config) rights.Features {
	f := rights.Features{Discovery: config.Discovery().Enabled}
	switch {
	case !s.leases.Enabled:
	case s.csiAddress != "":
		f.Leases = []rights.Lease{{Namespace: s.leases.Namespace}} // the driver has not reported its name yet
	default:
		f.ReplicaNamespace = s.leases.Namespace
		for _, d := range config.Drivers() {
			l := d.LeaseOf()
			f.Leases = append(f.Leases, rights.Lease{Namespace: cmp.Or(l.Namespace, s.leases.Namespace), Name: l.Name})
		}
	}
	return f
}

// rightsOf returns how a driver's checklist reads the rights of this process.
func rightsOf(s hubSettings, config func() *registry.Config, kube authorizationv1.SelfSubjectAccessReviewsGetter) view.RightsFunc {
	return func(ctx context.Context, l lease.Name) ([]rights.Right, error) {
		f := featuresOf(s, config())
		f.Leases = nil
		if l != (lease.Name{}) {
			f.Leases = []rights.Lease{{Namespace: l.Namespace, Name: l.Name}}
		}
		return rights.Missing(ctx, kube, rights.Needed(f))
	}
}
