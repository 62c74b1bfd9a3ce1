package main

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/spf13/cobra"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/torture"
)

// newChaosCommand breaks everything around hubs and checks that they lose nothing.
func newChaosCommand() *cobra.Command {
	o := torture.Options{Drivers: 4}
	cmd := &cobra.Command{
		Use:   "chaos",
		Short: "Break everything around hubs at random, and check that nothing is lost",
		Long: `Start a Kubernetes control plane, fake CSI drivers and one or two hubs, attach and
detach volumes all the time, and break everything around them: drivers, hubs, the API
server, objects, drivers.yaml. After each hundred faults all is healed, and then what a
VolumeAttachment requires must be attached, and nothing else. Every call and every write is recorded:
at no moment may a hub act without the lease of the driver, and no moment may break a
rule of CSI.

The seed fixes which faults begin in which order and where. Exit code 0 means that
everything held. Otherwise the seed, what happened to the volume and where the logs are
is printed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Seed == 0 {
				o.Seed = rand.Uint64()
			}
			return inFolder(cmd, &o, runChaos)
		},
	}
	s := cmd.Flags()
	hubFlag(cmd, &o.Hub)
	s.Uint64Var(&o.Seed, "seed", 0, "seed of the plan of faults; 0 draws one")
	s.IntVar(&o.Faults, "faults", 1000, "least number of faults")
	return cmd
}

// inFolder runs chaos or soak with a folder, which stays if it fails.
func inFolder(cmd *cobra.Command, o *torture.Options, run func(context.Context, *torture.Options) error) error {
	dir, err := newFolder()
	if err != nil {
		return err
	}
	o.Dir, o.Out = dir, cmd.OutOrStdout()
	err = run(cmd.Context(), o)
	if closed := closeFolder(dir, err != nil, o.Out); err == nil {
		err = closed
	}
	return err
}

// runChaos makes one run. Its error says that something did not hold.
func runChaos(ctx context.Context, o *torture.Options) error {
	fmt.Fprintf(o.Out, "Seed %d, %d faults. To run it again: make chaos SEED=%[1]d FAULTS=%[2]d\n", o.Seed, o.Faults)
	report, err := torture.Chaos(ctx, *o)
	fmt.Fprint(o.Out, report)
	if n := len(report.Findings); err == nil && n > 0 {
		err = fmt.Errorf("chaos: %d things do not hold", n)
	}
	return err
}
