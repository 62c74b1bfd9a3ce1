package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options say what to measure.
type options struct {
	hub, proxy string    // binaries of cmd/csi-attach-hub and cmd/csi-attach-proxy
	self       string    // this program, which the baseline is too
	sidecar    string    // binary of csi-attacher; empty: without it
	rounds     int       // 0: as each case says
	command    string    // how this was started, for the report
	progress   io.Writer // gets a line for each step
}

func newCommand() *cobra.Command {
	o := options{sidecar: os.Getenv("CSI_ATTACHER")}
	var json, markdown string
	var redraw bool
	cmd := &cobra.Command{
		Use:   "bench [CASE...]",
		Short: "Measure csi-attach-hub next to the least that attaching can cost",
		Long: `Measure csi-attach-hub, on a real control plane, next to the baseline: a client that
knows every answer and makes only the calls that correctness needs. If the
environment variable CSI_ATTACHER names a binary of csi-attacher, one of them for
each driver takes part too, with default flags and tuned. CSI_ATTACHER=build builds
the one that internal/test/world/csiattacher pins.

The tables say which targets are missed. A missed target does not change the exit code.

--json names the report, which is written after each case and keeps the cases that were
measured before. --markdown writes its tables and charts.`,
		ValidArgs: caseNames(), Args: cobra.OnlyValidArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, names []string) (err error) {
			report, err := readReport(json)
			if err != nil {
				return err
			}
			o.progress = cmd.ErrOrStderr()
			if !redraw {
				err = o.run(cmd.Context(), names, report, json, cmd.OutOrStdout())
			}
			if markdown == "" {
				return err
			}
			return errors.Join(err, report.writeMarkdown(markdown))
		},
	}
	s := cmd.Flags()
	s.StringVar(&o.hub, "hub", "bin/csi-attach-hub", "binary of csi-attach-hub")
	s.StringVar(&o.proxy, "proxy", "bin/csi-attach-proxy", "binary of csi-attach-proxy")
	s.IntVar(&o.rounds, "rounds", 0, "number of turns of each competitor; 0: as each case says")
	s.StringVar(&json, "json", "bin/bench.json", "JSON file for all measurements")
	s.StringVar(&markdown, "markdown", "", "Markdown file with the lines <!-- bench --> and <!-- /bench -->, for tables, and <!-- bench pictures --> and <!-- /bench pictures -->, for charts")
	s.BoolVar(&redraw, "redraw", false, "measure nothing: write the file of --markdown from the report of --json")
	s.StringVar(&o.command, "command", "make bench", "command that started this, for the report")
	cmd.AddCommand(&cobra.Command{
		Use:    baselineCommand + " KUBECONFIG DRIVER=ENDPOINT...",
		Short:  "Run the baseline until SIGTERM",
		Args:   cobra.MinimumNArgs(2),
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			drivers := map[string]string{}
			for _, arg := range args[1:] {
				name, endpoint, _ := strings.Cut(arg, "=")
				drivers[name] = endpoint
			}
			return runBaseline(cmd.Context(), args[0], drivers, func() { fmt.Fprintln(cmd.OutOrStdout(), baselineReady) })
		},
	})
	return cmd
}

// run measures the named cases, or all, and adds them to a report, which it keeps in a file. A case that fails, such as one
// that needs root, keeps no other case from being measured.
func (o options) run(ctx context.Context, names []string, all report, path string, out io.Writer) (err error) {
	if o.sidecar == "build" {
		if o.sidecar, err = testbed.CSIAttacherBinary(ctx, o.progress); err != nil {
			return err
		}
	}
	if o.self, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program, which the baseline is too: %w", err)
	}
	var failed []error
	for _, c := range cases() {
		if ctx.Err() != nil || len(names) > 0 && !slices.Contains(names, c.Name) {
			continue
		}
		if o.rounds > 0 {
			c.Rounds = o.rounds
		}
		result, err := o.measure(ctx, c)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", c.Name, err))
			continue
		}
		all[c.Name] = result
		fmt.Fprintf(out, "**%s**: %s; in %s\n\n%s\n", c.Name, c.About, result.Took, report{c.Name: result}.summary())
		failed = append(failed, all.write(path))
	}
	return errors.Join(failed...)
}

// measure measures one case.
func (o options) measure(ctx context.Context, c Case) (r result, err error) {
	r = result{Date: time.Now().UTC().Truncate(time.Second), Machine: thisMachine(), Command: o.command}
	s, err := setStage(ctx, o, c)
	defer func() { err = errors.Join(err, s.close(context.WithoutCancel(ctx))) }()
	if err != nil {
		return r, err
	}
	if c.prepare != nil {
		if err := c.prepare(ctx, s); err != nil {
			return r, fmt.Errorf("prepare: %w", err)
		}
	}
	for round := range c.Rounds {
		for _, competitor := range s.competitors(round) {
			s.say("round %d of %d: %s", round+1, c.Rounds, competitor.name)
			figures, err := s.takeTurn(ctx, competitor)
			if err != nil {
				return r, fmt.Errorf("%s: %w", competitor.name, err)
			}
			r.Samples = append(r.Samples, sample{Competitor: competitor.name, Round: round + 1, Figures: figures})
		}
	}
	r.Took = time.Since(r.Date).Round(time.Second).String()
	return r, nil
}

// takeTurn runs a competitor once, and stops what the turn has started.
func (s *stage) takeTurn(ctx context.Context, c competitor) (figures Figures, err error) {
	before, err := s.count(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	a, err := c.start(ctx, s)
	s.running = []*attacher{a}
	defer func() {
		for _, a := range s.running {
			err = errors.Join(err, a.stop(context.WithoutCancel(ctx)))
		}
	}()
	if err != nil {
		return nil, err
	}
	a.ready, a.before = time.Since(began), before
	turn := func(ctx context.Context) (err error) {
		figures, err = s.c.turn(ctx, s, a)
		return err
	}
	if s.c.replicas { // which the turn ends
		err = turn(ctx)
	} else {
		err = a.whileRuns(ctx, turn)
	}
	return figures, err
}
