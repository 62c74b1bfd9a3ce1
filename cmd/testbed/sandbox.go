package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
)

// newSandboxCommand starts a scene and leaves it to the user.
func newSandboxCommand() *cobra.Command {
	return newSceneCommand(&cobra.Command{
		Use:   "sandbox",
		Short: "The same set-up as the demo, to play with until Ctrl-C",
		Long: `Start what the demo starts, make the Pods, and stay until Ctrl-C or SIGTERM.

It prints the KUBECONFIG line, where everything is, and what one can do. One of
the drivers hangs until it is let go.`,
	}, "how long the set-up may take, after the builds", runSandbox)
}

// runSandbox starts a scene and blocks until ctx ends and everything has been stopped.
func runSandbox(ctx context.Context, o sceneOptions) error {
	s, err := newScene(ctx, o)
	if err != nil {
		return err
	}
	running, end := context.WithCancel(ctx)
	var background sync.WaitGroup
	if err = s.open(ctx); err == nil {
		err = s.serveControls(running, &background)
	}
	if err == nil {
		fmt.Fprint(s.opts.out, s.guide())
		s.reportEnds(running, &background)
		<-ctx.Done()
		fmt.Fprintln(s.opts.out, "\nStopping.")
	}
	end()
	background.Wait()
	if ctx.Err() != nil {
		err = nil // it was asked to stop, maybe during the set-up
	}
	err = errors.Join(err, s.stop(context.WithoutCancel(ctx)))
	return errors.Join(err, s.close(err != nil))
}

// open starts everything and makes the Pods.
func (s *scene) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.opts.timeout, fmt.Errorf("not done %v after the start (--timeout)", s.opts.timeout))
	defer cancel()
	fmt.Fprintln(s.opts.out, "Starting a control plane, drivers and a hub.")
	if err := s.start(ctx); err != nil {
		return err
	}
	return s.Cluster.Create(ctx, s.workload.pods()...)
}

// serveControls serves the books and knobs of each driver until ctx ends.
func (s *scene) serveControls(ctx context.Context, background *sync.WaitGroup) error {
	for _, p := range s.running {
		listener, err := fakecsi.Listen("unix://" + p.control())
		if err != nil {
			return err
		}
		background.Go(func() {
			if err := fakecsi.ServeControl(ctx, listener, p.Backend); err != nil {
				fmt.Fprintln(s.opts.out, err)
			}
		})
	}
	return nil
}

// control returns the path of the socket of a driver's books and knobs.
func (p sceneDriver) control() string { return strings.TrimSuffix(p.Socket, ".sock") + "-control.sock" }

// reportEnds prints when a process ends, until ctx ends. The sandbox goes on: users may want to try
// that.
func (s *scene) reportEnds(ctx context.Context, background *sync.WaitGroup) {
	for _, p := range s.Processes() {
		background.Go(func() {
			select {
			case <-p.Done():
				fmt.Fprintf(s.opts.out, "The %s (pid %d) has ended; its log is %s\n", p.Name(), p.PID(), p.LogPath())
			case <-ctx.Done():
			}
		})
	}
}

// guide returns a text for the user: where everything is and what to try.
func (s *scene) guide() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%d Pods on %d nodes, each with a volume of one of %d drivers.\nThere is no kubelet, so Pods stay Pending even when their volumes are attached.\n\n", s.opts.pods, s.opts.nodes, len(s.running))
	for _, p := range s.running {
		fmt.Fprintf(&b, "  %-28s  %s\n    socket   %s\n    control  %s\n", p.driver(), p.does, p.Socket, p.control())
	}
	hanging, fast := s.sceneDriver("hanging").control(), s.sceneDriver("fast").control()
	fmt.Fprintf(&b, `
  status page   %[8]s
  drivers.yaml  %[1]s
  hub's log     %[2]s
  hub's pid     %[3]d

Let the hanging driver go, or make it hang again:
  curl --unix-socket %[4]s --data '{"releaseAll":true}' http://driver/knobs
  curl --unix-socket %[4]s --data '{"hang":[{"method":"ControllerPublishVolume"}]}' http://driver/knobs
Make the fast one slow, or let its next three publishes fail:
  curl --unix-socket %[5]s --data '{"latency":{"ControllerPublishVolume":{"base":"5s"}}}' http://driver/knobs
  curl --unix-socket %[5]s --data '{"fail":[{"method":"ControllerPublishVolume","code":"UNAVAILABLE","count":3}]}' http://driver/knobs
Make a new attach: delete the Pod fast-1, wait until its volume is detached, and make the Pod again:
  export KUBECONFIG=%[7]s
  kubectl get pod fast-1 -o json > fast-1.json; kubectl delete pod fast-1 --force
  until ! kubectl get volumeattachments | grep 'fast-1 '; do sleep 1; done; kubectl create -f fast-1.json
Read the books of a driver: what is attached where, calls, violations:
  curl --unix-socket %[5]s http://driver/books
What the hub is doing, and why a volume of the hanging driver is not attached:
  %[6]s status --server %[8]s
  %[6]s explain --server %[8]s --kubeconfig %[7]s pod/default/hanging-1
Kill the hub and start another one in its place, which waits until the lease of the first has run out:
  kill -9 %[3]d
  %[6]s --kubeconfig %[7]s --config %[1]s --http-endpoint %[9]s

The cluster, for kubectl or any other client:
  export KUBECONFIG=%[7]s

Ctrl-C stops everything and removes the folder.
`, s.ConfigPath(), s.hub.LogPath(), s.hub.PID(), hanging, fast, s.opts.hub, s.Plane.Kubeconfig(), s.hub.URL+"/", strings.TrimPrefix(s.hub.URL, "http://"))
	return b.String()
}
