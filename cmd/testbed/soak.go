package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/torture"
)

// newSoakCommand lets a hub work for a long time.
func newSoakCommand() *cobra.Command {
	o := torture.Options{Seed: 1, Drivers: 5}
	var duration time.Duration
	cmd := &cobra.Command{
		Use:   "soak",
		Short: "Let a hub attach and detach for a long time, and check that it does not grow",
		Long: `Start a Kubernetes control plane, fake CSI drivers and csi-attach-hub, attach and
detach all the time, and take samples of the hub: memory, goroutines, descriptors,
queues. At the end, judge the samples after the warm-up.

The exit code is 1 when something grew, or when the drivers' books show a lost or
unexpected attachment.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return inFolder(cmd, &o, func(ctx context.Context, o *torture.Options) error { return runSoak(ctx, *o, duration) })
		},
	}
	hubFlag(cmd, &o.Hub)
	cmd.Flags().DurationVar(&duration, "duration", 20*time.Minute, "length of the load")
	return cmd
}

func runSoak(ctx context.Context, o torture.Options, duration time.Duration) error {
	report, err := torture.Soak(ctx, o, duration)
	if err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "\n%s\n", report.Text)
	if len(report.Grew) > 0 {
		return fmt.Errorf("soak: the hub grew: %s", strings.Join(report.Grew, ", "))
	}
	return nil
}
