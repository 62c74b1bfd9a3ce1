package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/spf13/cobra"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/torture"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// chaosOptions are the flags of the chaos command.
type chaosOptions struct {
	run     torture.Options
	race    bool
	json    bool
	keep    bool
	timeout time.Duration
}

// newChaosCommand breaks everything around hubs and checks that they lose nothing.
func newChaosCommand() *cobra.Command {
	var o chaosOptions
	cmd := &cobra.Command{
		Use:   "chaos",
		Short: "Break everything around hubs at random, and check that nothing is lost",
		Long: `Start a Kubernetes control plane, fake CSI drivers and one or two hubs, attach and
detach volumes all the time, and break everything around them: drivers, hubs, the API
server, objects, drivers.yaml. After each hundred faults all is healed, and then what is
asked for must be attached, and nothing else. Every call and every write is recorded:
at no moment may a hub act without the lease of the driver, and no moment may break a
rule of CSI.

The seed fixes which faults begin in which order and where. Exit code 0 means that
everything held. Otherwise the seed, what happened to the volume and where the logs are
is printed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runChaos(cmd.Context(), o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	s := cmd.Flags()
	s.Uint64Var(&o.run.Seed, "seed", 0, "seed of the plan of faults; 0 draws one")
	s.IntVar(&o.run.Faults, "faults", 1000, "least number of faults")
	s.IntVar(&o.run.Drivers, "drivers", 4, "number of drivers, with eight pods each")
	s.StringVar(&o.run.Hub, "hub", "", "binary of csi-attach-hub; without it, it is built")
	s.StringVar(&o.run.History, "history", "", "file that gets each call, each write and each change of a storage, one a line; without it, it is in the folder with the logs")
	s.BoolVar(&o.race, "race", false, "build the hub with the race detector")
	s.BoolVar(&o.json, "json", false, "print the report as JSON; progress goes to stderr")
	s.BoolVar(&o.keep, "keep-logs", false, "keep the folder with the logs even if everything held")
	s.DurationVar(&o.run.QuietWithin, "quiet-within", 90*time.Second, "time limit after each stretch of faults until every volume is where it was asked for")
	s.DurationVar(&o.timeout, "timeout", 30*time.Minute, "time limit of the run, without the builds")
	return cmd
}

// runChaos makes one run. Its error says that something did not hold.
func runChaos(ctx context.Context, o chaosOptions, out, progress io.Writer) error {
	if o.run.Seed == 0 {
		o.run.Seed = rand.Uint64()
	}
	if !o.json {
		progress = out
	}
	o.run.Out = progress
	folder, err := newFolder(progress)
	if err != nil {
		return err
	}
	o.run.Dir = folder.dir
	if o.run.Hub, err = folder.hub(ctx, o.run.Hub, testbed.BuildOptions{Race: o.race}); err != nil {
		return err
	}
	fmt.Fprintf(progress, "Seed %d, %d faults.\n", o.run.Seed, o.run.Faults)
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("not done %v after the start (--timeout)", o.timeout))
	defer cancel()
	report, err := torture.Chaos(ctx, o.run)
	return errors.Join(showChaos(report, err, o.json, out), folder.close(o.keep || err != nil || !report.Held()))
}

// showChaos prints a report. Its error says that something did not hold.
func showChaos(report *torture.Report, err error, asJSON bool, out io.Writer) error {
	if report == nil {
		return err
	}
	if asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(report); err != nil {
			return fmt.Errorf("print report: %w", err)
		}
	} else {
		fmt.Fprint(out, report)
	}
	switch {
	case err != nil:
		return fmt.Errorf("chaos stopped early; run it again with: %s: %w", report.Command(), err)
	case !report.Held():
		return fmt.Errorf("chaos: %d things do not hold; run it again with: %s", len(report.Findings), report.Command())
	}
	return nil
}
