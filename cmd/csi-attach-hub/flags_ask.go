package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-attach-hub/csi-attach-hub/internal/hubclient"
	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
)

// askFlags say how a running hub is asked, and how the answer is written.
type askFlags struct {
	server     string
	kubeconfig string
	namespace  string
	output     string
	transport  hubclient.TransportOptions
}

func (f *askFlags) add(set *pflag.FlagSet) {
	set.StringVar(&f.server, "server", "", "`URL` of one replica, http(s)://host:port; without it the Pods of the hub are asked through the Kubernetes API, all of them")
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "`file` to reach the Kubernetes API by; without it that of kubectl, or as a Pod of the cluster")
	set.StringVarP(&f.namespace, "namespace", "n", cmp.Or(os.Getenv("POD_NAMESPACE"), "csi-attach-hub"), "`namespace` of the hub")
	set.StringVarP(&f.output, "output", "o", "table", "`format`: table or json")
	set.StringVar(&f.transport.TokenFile, "token-file", "", "`file` with the token to show to a hub that asks who is there; only over TLS")
	set.StringVar(&f.transport.CAFile, "ca-file", "", "`file` with the authorities of the hub's certificate; without it those of the system")
	set.StringVar(&f.transport.ServerName, "tls-server-name", "", "`name` that the hub's certificate has; without it that of --server, or csi-attach-hub.NAMESPACE.svc")
	set.BoolVar(&f.transport.Insecure, "insecure-skip-tls-verify", false, "do not check the hub's certificate")
}

func (f *askFlags) check() error {
	if f.output != "table" && f.output != "json" {
		return fmt.Errorf("--output %q: write table or json", f.output)
	}
	return nil
}

// kube returns how to reach the Kubernetes API, as kubectl would.
func (f *askFlags) kube() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the Kubernetes API: %w", err)
	}
	return forProtobuf(config), nil
}

// hub finds the replicas. config may be nil with --server.
func (f *askFlags) hub(ctx context.Context, config *rest.Config) (*hubclient.Hub, error) {
	return hubclient.Find(ctx, hubclient.Options{Server: f.server, Config: config, Namespace: f.namespace, Transport: f.transport})
}

// printJSON writes a value, fit for a terminal.
func printJSON(w io.Writer, value any) error {
	body, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", terminal.JSON(body))
	return err
}

// exitError ends the program with an exit code of its own.
type exitError struct {
	code int
	err  error // nil: all is said
}

func (e exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e exitError) Unwrap() error { return e.err }

// exitCode returns the code for an error, 1 if it has none.
func exitCode(err error) int {
	if exit, ok := errors.AsType[exitError](err); ok {
		return exit.code
	}
	return 1
}
