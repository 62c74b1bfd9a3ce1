package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/torture"
)

// newSoakCommand lets a hub work for a long time.
func newSoakCommand() *cobra.Command {
	var o torture.SoakOptions
	var svg string
	cmd := &cobra.Command{
		Use:   "soak",
		Short: "Let a hub attach and detach for a long time, and check that it does not grow",
		Long: `Start a Kubernetes control plane, fake CSI drivers and csi-attach-hub, attach and
detach all the time, and take samples of the hub: memory, goroutines, descriptors,
operations, queues. At the end, draw the samples and judge those after the warm-up.

The exit code is 1 when something grew, or when the drivers' books show a lost or
unexpected attachment.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out = cmd.OutOrStdout()
			folder, err := newFolder(o.Out)
			if err != nil {
				return err
			}
			o.Dir = folder.dir
			err = runSoak(cmd.Context(), o, svg)
			return errors.Join(err, folder.close(err != nil))
		},
	}
	s := cmd.Flags()
	s.StringVar(&o.Hub, "hub", "bin/csi-attach-hub", "binary of csi-attach-hub")
	s.DurationVar(&o.Duration, "duration", 20*time.Minute, "length of the load")
	s.DurationVar(&o.Every, "every", 5*time.Second, "time between two samples")
	s.IntVar(&o.Drivers, "drivers", 5, "number of drivers")
	s.IntVar(&o.Volumes, "volumes", 20, "number of volumes of each driver")
	s.DurationVar(&o.Latency, "latency", 50*time.Millisecond, "time that each call of a driver takes")
	s.Uint64Var(&o.Seed, "seed", 1, "seed of the load")
	s.StringVar(&svg, "svg", "soak.svg", "file to draw the picture into")
	return cmd
}

func runSoak(ctx context.Context, o torture.SoakOptions, svg string) error {
	// An error here must come before a long run.
	out, err := os.Create(filepath.Clean(svg))
	if err != nil {
		return fmt.Errorf("soak: %w", err)
	}
	defer out.Close()
	report, err := torture.Soak(ctx, o)
	if err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "\n%s\nDrawn in %s\n", report.Text(), svg)
	_, err = out.Write(drawSoak(report))
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("soak: %w", err)
	}
	if grew := report.Grew(); len(grew) > 0 {
		return fmt.Errorf("soak: the hub grew: %s", strings.Join(grew, ", "))
	}
	return nil
}
