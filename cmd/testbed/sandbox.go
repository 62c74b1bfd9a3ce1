package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
)

// sandboxStuckAfter is stuckAfter in the sandbox's drivers.yaml: nobody waits 15 minutes to see a stuck volume.
const sandboxStuckAfter = 30 * time.Second

// newSandboxCommand starts a scene and leaves it to the user.
func newSandboxCommand() *cobra.Command {
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
	}, "time limit of the set-up, without the builds", func(ctx context.Context, o sceneOptions) error {
		o.stuckAfter = sandboxStuckAfter
		return runSandbox(ctx, o)
	})
	cmd.AddCommand(newSandboxVerbCommands()...)
	return cmd
}

// runSandbox starts a scene and blocks until ctx ends and everything has been stopped.
func runSandbox(ctx context.Context, o sceneOptions) error {
	s, err := newScene(ctx, o)
	if err != nil {
		return err
	}
	b := newSandbox(s)
	running, end := context.WithCancel(ctx)
	if err = b.open(ctx); err == nil {
		err = b.serve(running)
	}
	if err == nil {
		fmt.Fprint(o.out, b.guide())
		b.reportEnd(s.Plane.Process())
		b.reportEnd(s.hub.Process)
		<-ctx.Done()
		fmt.Fprintln(o.out, "\nStopping.")
	}
	end()
	b.close()
	if ctx.Err() != nil {
		err = nil // it was asked to stop, maybe during the set-up
	}
	err = errors.Join(err, s.stop(context.WithoutCancel(ctx)))
	return errors.Join(err, s.close(err != nil))
}

// sandbox is a scene that users change while it runs.
type sandbox struct {
	*scene
	background sync.WaitGroup
	done       chan struct{} // closed by close

	mu     sync.Mutex          // held by each verb: one runs at a time
	closed bool                // no verb may start anything
	down   map[string]bool     // drivers that were killed or stopped, by short name
	hubs   map[string]*hubSlot // by name
}

func newSandbox(s *scene) *sandbox {
	return &sandbox{scene: s, done: make(chan struct{}), down: map[string]bool{}}
}

// open starts everything, makes the Pods and writes the env file.
func (b *sandbox) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, b.opts.timeout, fmt.Errorf("not done %v after the start (--timeout)", b.opts.timeout))
	defer cancel()
	fmt.Fprintln(b.opts.out, "Starting a control plane, drivers and a hub.")
	if err := b.start(ctx); err != nil {
		return err
	}
	if err := b.Cluster.Create(ctx, b.workload.pods()...); err != nil {
		return err
	}
	if err := b.makeHubSlots(ctx); err != nil {
		return err
	}
	return b.writeEnv()
}

// serve serves the verbs, and the books and knobs of each driver, and keeps the nodes alive, until ctx ends.
func (b *sandbox) serve(ctx context.Context) error {
	listener, err := fakecsi.Listen("unix://" + b.socket())
	if err != nil {
		return err
	}
	b.background.Go(func() { b.heartbeats(ctx) })
	b.background.Go(func() { b.note(fakecsi.ServeControl(ctx, listener, b.verbs(ctx))) })
	for _, p := range b.running {
		listener, err := fakecsi.Listen("unix://" + p.control())
		if err != nil {
			return err
		}
		b.background.Go(func() { b.note(fakecsi.ServeControl(ctx, listener, fakecsi.Control(p.Backend))) })
	}
	return nil
}

// note prints an error, if there is one.
func (b *sandbox) note(err error) {
	if err != nil {
		fmt.Fprintln(b.opts.out, err)
	}
}

// close blocks until no verb runs, and prevents further ones. Call it when the context of serve has ended.
func (b *sandbox) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	close(b.done)
	b.background.Wait()
}

// control returns the path of the socket of a driver's books and knobs.
func (p sceneDriver) control() string { return strings.TrimSuffix(p.Socket, ".sock") + "-control.sock" }
