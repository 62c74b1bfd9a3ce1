package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
)

// sceneOptions are the flags of a scene.
type sceneOptions struct {
	pods       int
	nodes      int
	hub        string        // binary of cmd/csi-attach-hub; empty: it is built
	timeout    time.Duration // after the builds
	stuckAfter time.Duration // in drivers.yaml; 0: the hub's default
	keepLogs   bool          // keep the folder
	enter      io.Reader     // a demo goes on at its end until this says Enter; nil: it stops
	out        io.Writer
}

// newSceneCommand adds to a command the flags of a scene and what runs it. timeout is the help of
// --timeout.
func newSceneCommand(cmd *cobra.Command, timeout string, run func(context.Context, sceneOptions) error) *cobra.Command {
	var o sceneOptions
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o.out = cmd.OutOrStdout()
		return run(cmd.Context(), o)
	}
	s := cmd.Flags()
	s.IntVar(&o.pods, "pods", 40, "number of Pods, each with its own volume, spread over the drivers")
	s.IntVar(&o.nodes, "nodes", 4, "number of nodes")
	s.StringVar(&o.hub, "hub", "", "binary of csi-attach-hub; without it, it is built")
	s.BoolVar(&o.keepLogs, "keep-logs", false, "keep the folder with the logs at the end")
	s.DurationVar(&o.timeout, "timeout", 5*time.Minute, timeout)
	return cmd
}

func (o *sceneOptions) check() error {
	if o.pods < len(behaviours) {
		return fmt.Errorf("--pods %d: there are %d drivers, and each needs a Pod", o.pods, len(behaviours))
	}
	if o.nodes < 1 {
		return fmt.Errorf("--nodes %d: at least one is needed", o.nodes)
	}
	if o.timeout <= 0 {
		return fmt.Errorf("--timeout %v: it must be positive", o.timeout)
	}
	if o.hub == "" {
		return nil
	}
	if _, err := os.Stat(o.hub); err != nil {
		return fmt.Errorf("--hub: %w: leave the flag out, and it is built", err)
	}
	return nil
}
