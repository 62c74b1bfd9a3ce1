package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format json
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/rights"
)

func newHubCommand() *cobra.Command {
	c := newCommand("csi-attach-hub", "One attacher for many CSI drivers", nil)
	c.Args = cobra.NoArgs
	c.CompletionOptions.DisableDefaultCmd = true
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

// runHub blocks until the hub has been told to stop and has drained.
func runHub(ctx context.Context, s hubSettings) error {
	collectGarbage()
	hangups, ignoreHangups := catchHangups()
	defer ignoreHangups()
	// Before anything is contacted: a bad file must not have half an effect.
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
	leases, err := newLeases(s, config)
	if err != nil {
		return err
	}
	recorder, stopRecorder, err := newRecorder(config)
	if err != nil {
		return err
	}
	defer stopRecorder()
	metrics, health := status.NewMetrics(), status.NewHealth()
	options := hub.Options{Kube: kube, Grace: s.shutdownGrace, Events: recorder, Metrics: metrics, Health: health}
	lead(&options, leases, s.leases)
	h, err := hub.New(options)
	if err != nil {
		return err
	}
	r, err := newRegistry(source, kube)
	if err != nil {
		return err
	}
	view := seen{Hub: h, source: source, registry: r, leases: leases, started: time.Now()}
	servers, err := view.servers(func(server *status.Server) error { return server.Listen(ctx) }, kube, s.http, metrics, health)
	if err != nil {
		return err
	}
	logger := klog.FromContext(ctx)
	logger.Info("Starting", "version", version, "config", source.Name(), "drivers", len(source.Config().Drivers()), "leaderElection", s.leases.Enabled)
	for _, w := range s.warnings {
		logger.Info("Warning: a flag does not do what it says elsewhere", "warning", w)
	}
	for _, w := range source.Config().Warnings() {
		w.Log(logger)
	}
	context.AfterFunc(ctx, func() { logger.Info("Told to stop, letting calls in flight end", "grace", s.shutdownGrace) })
	asking, stopAsking := context.WithCancel(ctx)
	var asked sync.WaitGroup
	defer asked.Wait()
	defer stopAsking()
	asked.Go(func() { rights.Watch(asking, kube.AuthorizationV1(), neededRights(s, source.Config())) })
	var aids []func(context.Context) error
	if leases != nil {
		aids = append(aids, leases.Run)
	}
	for _, server := range servers {
		aids = append(aids, server.Run)
	}
	err = beside(ctx, aids, func(ctx context.Context) error {
		return runRegistry(ctx, r, hangups, reload, func() error { return h.Run(ctx, r.Updates()) })
	})
	if err != nil {
		return err
	}
	logger.Info("Stopped")
	return nil
}

// beside runs aids, leases and HTTP servers, while do runs, and returns what do did: they
// are needed until the last call has ended. One that ends with an error has do told to
// stop: nobody would see how a hub is that does not answer.
func beside(ctx context.Context, aids []func(context.Context) error, do func(context.Context) error) error {
	working, stop := context.WithCancel(ctx)
	defer stop()
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var running errgroup.Group
	for _, aid := range aids {
		running.Go(func() error {
			err := aid(lasting)
			if err != nil {
				klog.FromContext(ctx).Error(err, "Stopping in order: something has ended that is needed")
				stop()
			}
			return err
		})
	}
	err := do(working)
	cancel()
	return errors.Join(err, running.Wait())
}

// kubeConfig returns how to reach the Kubernetes API, without a rate limit: the API
// server has priority and fairness, and a limit here would couple the drivers.
func kubeConfig(kubeconfig string) (*rest.Config, error) {
	config, err := restConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("find the Kubernetes API: %w", err)
	}
	return forProtobuf(config), nil
}

// forProtobuf takes the rate limit from a config, and JSON where it can.
func forProtobuf(config *rest.Config) *rest.Config {
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	config.UserAgent = "csi-attach-hub/" + version
	return config
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig != "" {
		return clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	config, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, fmt.Errorf("%w; outside of a cluster give --kubeconfig", err)
	}
	return config, err
}
