package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	root := newCommand()
	root.AddCommand(newBaselineCommand())
	err := root.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// newCommand measures.
func newCommand() *cobra.Command {
	o := Options{Sidecar: os.Getenv("CSI_ATTACHER")}
	var json, markdown string
	var redraw bool
	cmd := &cobra.Command{
		Use:   "bench [CASE...]",
		Short: "Measure csi-attach-hub next to the least that attaching can cost",
		Long: `Measure csi-attach-hub, on a real control plane, next to the floor: a baseline client that
knows every answer and makes only the calls that correctness needs. If the
environment variable CSI_ATTACHER names a binary of csi-attacher, one of them for
each driver takes part too, with default flags and tuned. CSI_ATTACHER=build builds
the one that internal/csiattacher pins.

The tables say which targets are missed. A missed target does not change the exit code.

With --json, the report is written after each case. It keeps the cases that were
measured before, and the time that they took serves to say how much time is left.
--markdown draws charts too, into the folder "pictures" beside the file. --redraw
writes the file of --markdown from the report of --json, and measures nothing.`,
		ValidArgs: CaseNames(), Args: cobra.ArbitraryArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, cases []string) (err error) {
			if json != "" {
				if o.Last, err = ReadReport(json); err != nil {
					return err
				}
			}
			if redraw {
				return redrawReport(o.Last, markdown, cases)
			}
			o.Cases, o.Progress = cases, cmd.ErrOrStderr()
			if o.Sidecar == "build" {
				if o.Sidecar, err = testbed.CSIAttacherBinary(cmd.Context(), o.Progress); err != nil {
					return err
				}
			}
			if o.Testbed, err = os.Executable(); err != nil {
				return fmt.Errorf("find this program, which the baseline is too: %w", err)
			}
			o.Measured = func(r Report) error { return writeReport(o.Last, r, json, "") }
			report, err := Run(cmd.Context(), o)
			if len(report.Cases) > 0 {
				fmt.Fprint(cmd.OutOrStdout(), report)
			}
			return errors.Join(err, writeReport(o.Last, report, json, markdown))
		},
	}
	s := cmd.Flags()
	s.StringVar(&o.Hub, "hub", "bin/csi-attach-hub", "binary of csi-attach-hub")
	s.StringVar(&o.Proxy, "proxy", "bin/csi-attach-proxy", "binary of csi-attach-proxy")
	s.IntVar(&o.Rounds, "rounds", 0, "number of turns of each competitor; 0: as each case says")
	s.StringVar(&json, "json", "", "JSON file for all measurements; those of other cases in it are kept")
	s.StringVar(&markdown, "markdown", "", "Markdown file for the tables, between its lines <!-- bench --> and <!-- /bench -->, with pictures between <!-- bench pictures --> and <!-- /bench pictures -->; it is created if it does not exist")
	s.BoolVar(&redraw, "redraw", false, "measure nothing: write the file of --markdown and its pictures from the report of --json")
	s.StringVar(&o.Profiles, "profiles", "", "folder for CPU and heap profiles of the hub, in the cases with bursts")
	s.StringVar(&o.Command, "command", "make bench", "command that started this, for the report")
	s.BoolVar(&o.Keep, "keep-logs", false, "keep the folders with the logs")
	return cmd
}

// writeReport writes what was measured now, and before. An empty path is not written.
func writeReport(before, r Report, json, markdown string) error {
	if len(r.Cases) == 0 {
		return nil
	}
	r = before.With(r)
	if json != "" {
		if err := r.WriteJSON(json); err != nil {
			return err
		}
	}
	if markdown == "" {
		return nil
	}
	return r.WriteMarkdown(markdown)
}

// redrawReport writes a report that was measured before.
func redrawReport(r Report, markdown string, cases []string) error {
	if len(cases) > 0 || markdown == "" || len(r.Cases) == 0 {
		return errors.New("bench --redraw needs --json with a report, --markdown, and no cases")
	}
	return r.WriteMarkdown(markdown)
}

// newBaselineCommand is a competitor, as a process of its own.
func newBaselineCommand() *cobra.Command {
	return &cobra.Command{
		Use:    BaselineCommand,
		Short:  "Run the baseline of a benchmark until SIGTERM",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return RunBaseline(cmd.Context(), args[0], cmd.OutOrStdout())
		},
	}
}
