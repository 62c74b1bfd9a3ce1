package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-attach-hub/csi-attach-hub/internal/hubclient"
	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
)

// clientFlags are the flags of the subcommands that ask a running hub.
type clientFlags struct {
	server     string
	kubeconfig string
	namespace  string
	output     string
	transport  hubclient.TransportOptions
}

func (f *clientFlags) add(set *pflag.FlagSet) {
	set.StringVar(&f.server, "server", "", "`URL` of one replica, http(s)://host:port; without it, all Pods of the hub are asked through the Kubernetes API")
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "`file` with the access to the Kubernetes API; without it kubectl's, then the service account of the Pod")
	set.StringVarP(&f.namespace, "namespace", "n", cmp.Or(os.Getenv("POD_NAMESPACE"), "csi-attach-hub"), "`namespace` of the hub")
	set.StringVarP(&f.output, "output", "o", "table", "output `format`, table or json")
	set.StringVar(&f.transport.TokenFile, "token-file", "", "`file` with the token for a hub that has --http-authorization; sent over verified TLS only")
	set.StringVar(&f.transport.CAFile, "ca-file", "", "`file` with the authorities that sign the hub's certificate; without it, those of the system")
	set.StringVar(&f.transport.ServerName, "tls-server-name", "", "`name` in the hub's certificate; without it, the host of --server or csi-attach-hub.NAMESPACE.svc")
	set.BoolVar(&f.transport.Insecure, "insecure-skip-tls-verify", false, "skip the check of the hub's certificate")
}

func (f *clientFlags) check() error {
	if f.output != "table" && f.output != "json" {
		return fmt.Errorf("--output %q: write table or json", f.output)
	}
	return nil
}

// kube returns the client configuration for the Kubernetes API. It looks in the same places
// as kubectl.
func (f *clientFlags) kube() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the Kubernetes API: %w", err)
	}
	return forProtobuf(config), nil
}

// hub finds the replicas. config may be nil if --server was given.
func (f *clientFlags) hub(ctx context.Context, config *rest.Config) (*hubclient.Hub, error) {
	return hubclient.Find(ctx, hubclient.Options{Server: f.server, Config: config, Namespace: f.namespace, Transport: f.transport})
}

// printJSON writes a value as JSON. It escapes control characters that would change the terminal.
func printJSON(w io.Writer, value any) error {
	body, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", terminal.JSON(body))
	return err
}
