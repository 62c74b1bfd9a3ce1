package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// recipes are what to try. All lines that begin with two spaces are commands for a shell that has sourced the env file.
//
//go:embed recipes.txt
var recipes string

// newSandboxCommand starts a scene and leaves it to the user.
func newSandboxCommand() *cobra.Command {
	var o sceneOptions
	cmd := newSceneCommand(&cobra.Command{
		Use:   "sandbox",
		Short: "Run the set-up of the demo until Ctrl-C, to break things and look at the hub",
		Long: `Start what the demo starts, make the Pods, and stay until Ctrl-C or SIGTERM.

It prints recipes: what to type to make a driver hang, fail or end, to fill a node, to
pause a driver, to kill a hub and to start a second one, how to look at the effect, and
the way back. The recipes need the variables of the file "env" that it writes: source
that file first. The subcommands below act on the sandbox of that file.`,
		Example: `  testbed sandbox                  # in one terminal; then in another:
  source /tmp/attach-hub-1234/env  # as the sandbox has printed
  testbed sandbox kill fast
  testbed sandbox start fast`,
	}, &o, runSandbox)
	cmd.AddCommand(newVerbCommands()...)
	return cmd
}

// sandbox is a scene that users change while it runs.
type sandbox struct {
	*scene
	mu   sync.Mutex              // held by each verb: one runs at a time
	hubs map[string]*testbed.Hub // by name; one without a Process was never started
}

// runSandbox starts a scene and blocks until ctx ends and everything has been stopped.
func runSandbox(ctx context.Context, o sceneOptions) error {
	s, err := newScene(ctx, o)
	if err != nil {
		return err
	}
	b := &sandbox{scene: s}
	if err = b.open(ctx); err == nil {
		err = b.serve(ctx)
	}
	if ctx.Err() != nil {
		fmt.Fprintln(o.out, "\nStopping.")
		err = nil // it was asked to stop, maybe during the set-up
	}
	return s.end(ctx, err)
}

// open starts everything, makes the Pods and writes the env file.
func (b *sandbox) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, b.opts.timeout, fmt.Errorf("not done %v after the start", b.opts.timeout))
	defer cancel()
	fmt.Fprintln(b.opts.out, "Starting a control plane, drivers and a hub.")
	if err := b.start(ctx); err != nil {
		return err
	}
	if err := b.Cluster.Create(ctx, b.workload.pods()...); err != nil {
		return err
	}
	second, err := testbed.FreeAddress(ctx)
	if err != nil {
		return err
	}
	b.hubs = map[string]*testbed.Hub{"hub": b.hub, "hub-2": {URL: "http://" + second}}
	return b.writeEnv()
}

// serve serves the verbs and keeps the nodes alive, until ctx ends and no verb runs.
func (b *sandbox) serve(ctx context.Context) error {
	listener, err := net.Listen("unix", b.socket())
	if err != nil {
		return err
	}
	server := &http.Server{Handler: b.handler(), ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	fmt.Fprint(b.opts.out, b.guide())
	b.heartbeats(ctx)
	return errors.Join(server.Shutdown(context.WithoutCancel(ctx)), <-served)
}

// heartbeats updates each node every two seconds until ctx ends, as a kubelet does. The attach-detach controller takes a volume
// whose attach has failed for mounted until it sees an update of its node: without updates it would detach the volume only
// after six minutes. An error is skipped: the next update does as well.
func (b *sandbox) heartbeats(ctx context.Context) {
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"sandbox/heartbeat":"%d"}}}`, n)
		for _, node := range b.workload.nodes {
			_, _ = b.Plane.Clientset().CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
		}
	}
}

// guide returns a text for the user: where everything is and what to try.
func (b *sandbox) guide() string {
	var t strings.Builder
	fmt.Fprintf(&t, `
%d Pods on %d nodes, each with a claim and a volume of one of %d drivers.
There is no kubelet, so Pods stay Pending even when their volumes are attached.

`, b.opts.pods, b.opts.nodes, len(behaviours))
	for _, d := range behaviours {
		fmt.Fprintf(&t, "  %-28s  %s\n", d.driver(), d.does)
	}
	fmt.Fprintf(&t, `
  status page   %s/
  drivers.yaml  %s
  hub's log     %s

In another terminal, read the variables and the programs of this sandbox first:

  source %s

%s`, b.hub.URL, b.ConfigPath(), b.hub.LogPath(), b.envPath(), recipes)
	return t.String()
}

// envPath returns the path of the env file.
func (b *sandbox) envPath() string { return filepath.Join(b.folder, "env") }

// writeEnv writes a file for a shell to source: where everything is, and the programs in PATH.
func (b *sandbox) writeEnv() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	programs := filepath.Join(b.folder, "bin")
	err = errors.Join(os.Mkdir(programs, 0o755), os.Symlink(self, filepath.Join(programs, "testbed")), os.Symlink(b.opts.hub, filepath.Join(programs, "csi-attach-hub")))
	if err != nil {
		return err
	}
	text := fmt.Sprintf(`# The sandbox of csi-attach-hub, for a shell to source.
export %s='%s'
export KUBECONFIG='%s'
export HUB='%s'
export HUB2='%s'
export DRIVERS_YAML='%s'
export PATH='%s':"$PATH"
`, sandboxVariable, b.socket(), b.Plane.Kubeconfig(), b.hubs["hub"].URL, b.hubs["hub-2"].URL, b.ConfigPath(), programs)
	return os.WriteFile(b.envPath(), []byte(text), 0o600)
}
