package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/csi-attach-hub/csi-attach-hub/internal/bench"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// newBenchCommand measures.
func newBenchCommand() *cobra.Command {
	o := bench.Options{Sidecar: os.Getenv("CSI_ATTACHER")}
	var json, markdown string
	cmd := &cobra.Command{
		Use:   "bench [CASE...]",
		Short: "Measure csi-attach-hub next to the least that attaching can cost",
		Long: `Measure csi-attach-hub, on a real control plane, next to the floor: a baseline client that
knows every answer and makes only the calls that correctness needs. If the
environment variable CSI_ATTACHER names a binary of csi-attacher, one of them for
each driver takes part too, with default flags and tuned. CSI_ATTACHER=build builds
the one that internal/csiattacher pins.

The tables say which targets are missed. A missed target does not change the exit code.`,
		ValidArgs: bench.CaseNames(),
		RunE: func(cmd *cobra.Command, cases []string) (err error) {
			o.Cases, o.Progress = cases, cmd.ErrOrStderr()
			if o.Sidecar == "build" {
				if o.Sidecar, err = testbed.CSIAttacherBinary(cmd.Context(), o.Progress); err != nil {
					return err
				}
			}
			if o.Testbed, err = os.Executable(); err != nil {
				return fmt.Errorf("find this program, which the baseline is too: %w", err)
			}
			report, err := bench.Run(cmd.Context(), o)
			if len(report.Cases) > 0 {
				fmt.Fprint(cmd.OutOrStdout(), report)
			}
			return errors.Join(err, writeReport(report, json, markdown))
		},
	}
	s := cmd.Flags()
	s.StringVar(&o.Hub, "hub", "bin/csi-attach-hub", "binary of csi-attach-hub")
	s.IntVar(&o.Rounds, "rounds", 0, "number of turns of each competitor; 0: as each case says")
	s.StringVar(&json, "json", "", "JSON file for all measurements; those of other cases in it are kept")
	s.StringVar(&markdown, "markdown", "", "Markdown file for the tables, between its lines <!-- bench --> and <!-- /bench -->; it is created if it does not exist")
	s.StringVar(&o.Profiles, "profiles", "", "folder for CPU and heap profiles of the hub, in the cases with bursts")
	s.StringVar(&o.Command, "command", "make bench", "command that started this, for the report")
	s.BoolVar(&o.Keep, "keep-logs", false, "keep the folders with the logs")
	return cmd
}

// writeReport writes what was measured now, and in JSON files before.
func writeReport(r bench.Report, json, markdown string) error {
	if len(r.Cases) == 0 {
		return nil
	}
	if json != "" {
		before, err := bench.ReadReport(json)
		if err != nil {
			return err
		}
		r = before.With(r)
		if err := r.WriteJSON(json); err != nil {
			return err
		}
	}
	if markdown == "" {
		return nil
	}
	return r.WriteMarkdown(markdown)
}

// newBenchBaselineCommand is a competitor of bench, as a process of its own.
func newBenchBaselineCommand() *cobra.Command {
	return &cobra.Command{
		Use:    bench.BaselineCommand,
		Short:  "Run the baseline of a benchmark until SIGTERM",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return bench.RunBaseline(cmd.Context(), args[0], cmd.OutOrStdout())
		},
	}
}
