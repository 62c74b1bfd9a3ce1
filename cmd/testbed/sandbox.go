package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// newSandboxCommand sets a scene and leaves it to the user.
func newSandboxCommand() *cobra.Command {
	var o sceneOptions
	cmd := &cobra.Command{
		Use:   "sandbox",
		Short: "The same set-up as the demo, to play with until Ctrl-C",
		Long: `Start what the demo starts, make the Pods, and stay until Ctrl-C or SIGTERM.

It prints the KUBECONFIG line, where everything is, and what one can do. One of
the drivers hangs until it is let go.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.fill(cmd.OutOrStdout()); err != nil {
				return err
			}
			return runSandbox(cmd.Context(), o)
		},
	}
	o.register(cmd)
	cmd.Flags().DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long the set-up may take, after the builds")
	return cmd
}

// runSandbox sets a scene and blocks until ctx ends and all has been stopped.
func runSandbox(ctx context.Context, o sceneOptions) error {
	s, err := newScene(ctx, o)
	if err != nil {
		return err
	}
	err = s.open(ctx)
	if err == nil {
		s.stay(ctx)
	}
	if ctx.Err() != nil {
		err = nil // it was asked to stop, maybe during the set-up
	}
	err = errors.Join(err, s.stop(context.WithoutCancel(ctx)))
	return errors.Join(err, s.close(err != nil))
}

// open starts everything, makes the Pods and says so.
func (s *scene) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.opts.timeout, fmt.Errorf("not done %v after the start (--timeout)", s.opts.timeout))
	defer cancel()
	fmt.Fprintln(s.opts.out, "Starting a control plane, drivers and a hub.")
	if err := s.start(ctx); err != nil {
		return err
	}
	if err := testbed.NewCluster(s.plane.Clientset()).Create(ctx, s.workload.pods()...); err != nil {
		return err
	}
	fmt.Fprint(s.opts.out, s.guide())
	return nil
}

// stay blocks until ctx ends, and says when a process does. That may be what the
// user wants to try, so it goes on.
func (s *scene) stay(ctx context.Context) {
	s.onEnd(ctx, func(name string, p *testbed.Process) {
		fmt.Fprintf(s.opts.out, "The %s (pid %d) has ended; its log is %s\n", name, p.PID(), p.LogPath())
	})
	fmt.Fprintln(s.opts.out, "\nStopping.")
}

// guide says where everything is and what one can do with it.
func (s *scene) guide() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%d Pods on %d nodes, each with a volume of one of %d drivers:\n\n", s.opts.pods, s.opts.nodes, len(s.players))
	for _, p := range s.players {
		fmt.Fprintf(&b, "  %-28s  %s\n    socket   %s\n    control  %s\n", p.driver(), p.does, p.socket(s.dir), p.role.control(s.dir))
	}
	hanging, fast := s.player("hanging").role.control(s.dir), s.player("fast").role.control(s.dir)
	fmt.Fprintf(&b, `
  status page   %[8]s
  drivers.yaml  %[1]s
  hub's log     %[2]s
  hub's pid     %[3]d

Let the hanging driver go:
  curl --unix-socket %[4]s --data '{"releaseAll":true}' http://driver/knobs
Make the fast one slow, or let its next three publishes fail:
  curl --unix-socket %[5]s --data '{"latency":{"ControllerPublishVolume":{"base":"5s"}}}' http://driver/knobs
  curl --unix-socket %[5]s --data '{"fail":[{"method":"ControllerPublishVolume","code":"UNAVAILABLE","count":3}]}' http://driver/knobs
Read the books of a driver: what is attached where, calls, violations:
  curl --unix-socket %[5]s http://driver/books
What the hub is doing, and why a volume of the hanging driver is not attached:
  %[6]s status --server %[8]s
  %[6]s explain --server %[8]s --kubeconfig %[7]s pod/default/NAME
Kill the hub and start another one in its place, which waits until the lease of the first has run out:
  kill -9 %[3]d
  %[6]s --kubeconfig %[7]s --config %[1]s --http-endpoint %[9]s

The cluster, for kubectl or any other client:
  export KUBECONFIG=%[7]s

Ctrl-C stops everything and removes the folder.
`, s.configPath(), s.hubLog(), s.hub.PID(), hanging, fast, s.binaries.hub, s.plane.Kubeconfig(), s.page(), s.address)
	return b.String()
}
