package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format json
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// hubFlags are the flags of the hub, with their defaults.
type hubFlags struct {
	config        string
	kubeconfig    string
	shutdownGrace time.Duration
	logging       *logsapi.LoggingConfiguration
}

func newHubCommand() *cobra.Command {
	f := hubFlags{logging: logsapi.NewLoggingConfiguration()}
	c := newCommand("csi-attach-hub", "One attacher for many CSI drivers", func(c *cobra.Command, _ []string) error {
		return runHub(c.Context(), f)
	})
	c.Args = cobra.NoArgs
	c.CompletionOptions.DisableDefaultCmd = true
	flags := c.Flags()
	flags.StringVar(&f.config, "config", "/etc/csi-attach-hub/drivers.yaml", "`file` that says which drivers to serve")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "`file` to reach the Kubernetes API by; without it, as a Pod of the cluster")
	flags.DurationVar(&f.shutdownGrace, "shutdown-grace", 30*time.Second, "how long calls in flight may take to end after SIGTERM")
	logsapi.AddFlags(f.logging, flags)
	return c
}

// runHub blocks until the hub has been told to stop and has drained.
func runHub(ctx context.Context, f hubFlags) error {
	if err := logsapi.ValidateAndApply(f.logging, nil); err != nil {
		return fmt.Errorf("set up logging: %w", err)
	}
	defer logs.FlushLogs()
	if f.shutdownGrace < 0 {
		return errors.New("--shutdown-grace must not be negative")
	}
	// Before anything is contacted: a bad file must not have half an effect.
	file, err := registry.NewFile(registry.FileOptions{Path: f.config})
	if err != nil {
		return err
	}
	kube, err := kubeClient(f.kubeconfig)
	if err != nil {
		return err
	}
	h, err := hub.New(hub.Options{Kube: kube, Grace: f.shutdownGrace})
	if err != nil {
		return err
	}
	r, err := newRegistry(file, kube)
	if err != nil {
		return err
	}
	logger := klog.FromContext(ctx)
	logger.Info("Starting", "version", version, "config", f.config, "drivers", len(file.Config().Drivers()))
	for _, w := range file.Config().Warnings() {
		logger.Info("Warning: something in the config is doubtful", "warning", w)
	}
	context.AfterFunc(ctx, func() { logger.Info("Told to stop, letting calls in flight end", "grace", f.shutdownGrace) })
	if err := runRegistry(ctx, r, file, func() error { return h.Run(ctx, r.Updates()) }); err != nil {
		return err
	}
	logger.Info("Stopped")
	return nil
}

// kubeClient returns a client without a rate limit of its own: the API server has
// priority and fairness, and a limit here would couple the drivers.
func kubeClient(kubeconfig string) (kubernetes.Interface, error) {
	config, err := restConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("find the Kubernetes API: %w", err)
	}
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	config.UserAgent = "csi-attach-hub/" + version
	return kubernetes.NewForConfig(config)
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
