package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-attach-hub/csi-attach-hub/internal/hubclient"
	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
)

// clientFlags are the flags of the subcommands that ask the Kubernetes API, most of them for a running hub.
type clientFlags struct {
	server       string
	kubeconfig   string
	kubeContext  string // --context, of the kubeconfig; empty for the current one
	namespace    string // -n, of what is asked about; empty if not given: see askedNamespace
	hubNamespace string // --hub-namespace; empty if not given: see hubNamespaceOrDefault
	output       string
	// clusterScoped: the subcommand asks about nothing in a namespace, and has no -n.
	clusterScoped bool
}

func (f *clientFlags) add(set *pflag.FlagSet) {
	set.StringVar(&f.server, "server", "", "`URL` of one replica, http(s)://host:port; without it, all Pods of the hub are asked through the Kubernetes API")
	f.addAccess(set, "")
	if !f.clusterScoped {
		set.StringVarP(&f.namespace, "namespace", "n", "", "`namespace` of the object; without it, the current namespace of the kubeconfig")
	}
	set.StringVar(&f.hubNamespace, "hub-namespace", "", "`namespace` of the hub; without it, $POD_NAMESPACE, else csi-attach-hub")
	set.StringVarP(&f.output, "output", "o", "table", "output `format`, table or json")
}

// addAccess adds the flags that say where the Kubernetes API is. use says what for, if a command needs it for a part only.
func (f *clientFlags) addAccess(set *pflag.FlagSet, use string) {
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "`file` with the access to the Kubernetes API"+use+"; without it kubectl's, then the service account of the Pod")
	set.StringVar(&f.kubeContext, "context", "", "`name` of the context of the kubeconfig"+use+"; without it, the current one")
}

// accessGiven returns those flags of addAccess that were given. kubectl has them too.
func (f *clientFlags) accessGiven() []string {
	var given []string
	if f.kubeContext != "" {
		given = append(given, "--context="+f.kubeContext)
	}
	if f.kubeconfig != "" {
		given = append(given, "--kubeconfig="+f.kubeconfig)
	}
	return given
}

// access returns where the Kubernetes API is, and the current namespace. It looks in the same places as kubectl.
func (f *clientFlags) access() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: f.kubeContext})
}

// kube returns the client configuration for the Kubernetes API.
func (f *clientFlags) kube() (*rest.Config, error) {
	config, err := f.access().ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the Kubernetes API: %w", err)
	}
	return forProtobuf(config), nil
}

// askedNamespace returns the namespace of an object that is asked about without one: that of -n, else the
// current namespace of the kubeconfig, else "default".
func (f *clientFlags) askedNamespace() (string, error) {
	if f.namespace != "" {
		return f.namespace, nil
	}
	namespace, _, err := f.access().Namespace()
	if clientcmd.IsEmptyConfig(err) { // a command that needs the API says so
		return metav1.NamespaceDefault, nil
	}
	if err != nil {
		return "", fmt.Errorf("find the current namespace: %w", err)
	}
	return namespace, nil
}

// warnIgnored warns of flags that were given and have no effect because of --server.
func (f *clientFlags) warnIgnored(errOut io.Writer) {
	if f.server != "" && f.hubNamespace != "" {
		fmt.Fprintln(errOut, "Warning: --hub-namespace has no effect with --server")
	}
}

// hubNamespaceOrDefault returns the namespace of the hub.
func (f *clientFlags) hubNamespaceOrDefault() string {
	return cmp.Or(f.hubNamespace, os.Getenv("POD_NAMESPACE"), "csi-attach-hub")
}

// hub finds the replicas. config may be nil if --server was given.
func (f *clientFlags) hub(ctx context.Context, config *rest.Config) (*hubclient.Hub, error) {
	hub, err := hubclient.Find(ctx, hubclient.Options{Server: f.server, Config: config, Namespace: f.hubNamespaceOrDefault()})
	if f.server != "" {
		err = withCode(exitUsage, err)
	}
	return hub, err
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
