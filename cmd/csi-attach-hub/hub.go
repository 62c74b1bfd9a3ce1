package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format json
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub"
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
	// Before anything is contacted: a bad file must not have half an effect.
	source, reload, err := s.source()
	if err != nil {
		return err
	}
	if err := logsapi.ValidateAndApply(s.logging, nil); err != nil {
		return fmt.Errorf("set up logging: %w", err)
	}
	defer logs.FlushLogs()
	kube, err := kubeClient(s.kubeconfig)
	if err != nil {
		return err
	}
	h, err := hub.New(hub.Options{Kube: kube, Grace: s.shutdownGrace})
	if err != nil {
		return err
	}
	r, err := newRegistry(source, kube)
	if err != nil {
		return err
	}
	logger := klog.FromContext(ctx)
	logger.Info("Starting", "version", version, "config", source.Name(), "drivers", len(source.Config().Drivers()))
	for _, w := range s.warnings {
		logger.Info("Warning: a flag does not do what it says elsewhere", "warning", w)
	}
	for _, w := range source.Config().Warnings() {
		w.Log(logger)
	}
	context.AfterFunc(ctx, func() { logger.Info("Told to stop, letting calls in flight end", "grace", s.shutdownGrace) })
	if err := runRegistry(ctx, r, reload, func() error { return h.Run(ctx, r.Updates()) }); err != nil {
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
