package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/hubclient"
	"github.com/csi-attach-hub/csi-attach-hub/internal/statustable"
	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
)

// watchInterval is the interval of --watch.
const watchInterval = 2 * time.Second

// exitFailOn is the exit code when --fail-on found what it names.
const exitFailOn = 4

// statusFormats are the values of --output.
var statusFormats = []string{"table", "wide", "json"}

// failChoices are the values of --fail-on.
var failChoices = []string{string(status.Broken), string(status.Attention)}

// statusFlags are the flags of the subcommand status.
type statusFlags struct {
	clientFlags
	watch  bool
	color  string
	failOn string
}

func newStatusCommand() *cobra.Command {
	flags := statusFlags{clientFlags: clientFlags{clusterScoped: true}}
	c := newCommand("status", "Show the drivers of a running hub and the volumes in trouble, the worst first", func(c *cobra.Command, _ []string) error {
		if err := flags.check(); err != nil {
			return err
		}
		return runStatus(c, flags)
	})
	c.Long = c.Short + `.

Exit codes:
  0  a replica of the hub answered
  1  no replica answered, or the command line is wrong
  4  with --fail-on: a driver or a volume is at least that bad. A replica that does
     not answer, that cannot call a driver or that has another configuration, and a
     rejected configuration count as attention`
	c.Args = cobra.NoArgs
	flags.clientFlags.add(c.Flags())
	c.Flags().Lookup("output").Usage = "output `format`, table, wide (all columns, whole texts) or json"
	c.Flags().BoolVarP(&flags.watch, "watch", "w", false, "repeat every 2 seconds until interrupted")
	c.Flags().StringVar(&flags.color, "color", "auto", colorUsage)
	c.Flags().StringVar(&flags.failOn, "fail-on", "", "end with exit code 4 if a driver or a volume has this `health` or a worse one: broken or attention")
	return c
}

func (f *statusFlags) check() error {
	return errors.Join(
		oneOf("output", f.output, statusFormats...),
		oneOf("color", f.color, colorChoices...),
		oneOf("fail-on", f.failOn, append(failChoices, "")...),
		excluded(f.watch && f.failOn != "", "--fail-on", "--watch"),
	)
}

// oneOf returns an error that names the valid values of a flag, unless it has one of them.
func oneOf(flag, value string, valid ...string) error {
	if slices.Contains(valid, value) {
		return nil
	}
	return fmt.Errorf("--%s %q: write %s", flag, value, orList(slices.DeleteFunc(slices.Clone(valid), func(v string) bool { return v == "" })))
}

func excluded(both bool, a, b string) error {
	if !both {
		return nil
	}
	return fmt.Errorf("%s and %s cannot be used together", a, b)
}

// runStatus prints the status once, or with watch until the context of c ends.
func runStatus(c *cobra.Command, flags statusFlags) error {
	ctx, out, errOut := c.Context(), c.OutOrStdout(), c.ErrOrStderr()
	screen, err := newScreen(out, flags.color)
	if err != nil {
		return err
	}
	config, err := flags.config()
	if err != nil {
		return err
	}
	flags.warnIgnored(errOut)
	if flags.watch {
		return watchStatus(c, flags, config, screen)
	}
	report, err := fetchReport(ctx, &flags.clientFlags, config)
	if err != nil {
		return err
	}
	if flags.output == "json" {
		err = printJSON(out, report)
	} else {
		_, err = io.WriteString(out, report.Text(flags.text(screen)))
	}
	if err == nil && flags.failOn != "" && report.Summary.Health.Compare(status.HealthState(flags.failOn)) <= 0 {
		return exitError{code: exitFailOn}
	}
	return err
}

func (f *statusFlags) text(s *screen) statustable.TextOptions {
	return statustable.TextOptions{Style: s.style(), Wide: f.output == "wide"}
}

// watchStatus prints the status until the context of c ends. A terminal shows the last answer while the hub is away.
func watchStatus(c *cobra.Command, flags statusFlags, config *rest.Config, screen *screen) error {
	ctx, errOut := c.Context(), c.ErrOrStderr()
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	var last string
	var lost time.Time // since when there is no answer
	for {
		report, err := fetchReport(ctx, &flags.clientFlags, config)
		now := time.Now().UTC()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && screen.file != nil:
			if lost.IsZero() {
				lost = now
			}
			err = screen.redraw(fmt.Sprintf("No answer since %s UTC; asking again every %s: %s\n%s", lost.Format(time.TimeOnly), watchInterval, terminal.Line(err.Error()), last), "")
		case err != nil:
			_, err = fmt.Fprintln(errOut, terminal.Line(err.Error())) // the next try may succeed
		case flags.output == "json":
			err = printJSON(screen.out, report)
		default:
			lost, last = time.Time{}, report.Text(flags.text(screen))
			err = screen.redraw(last, now.Format(time.RFC3339))
		}
		if err != nil {
			return err // whoever reads it has gone
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// config returns the access to the Kubernetes API, nil if --server makes it unnecessary.
func (f *clientFlags) config() (*rest.Config, error) {
	if f.server != "" && f.kubeconfig == "" && f.kubeContext == "" {
		return nil, nil
	}
	return f.kube()
}

// fetchReport asks all replicas. It finds them each time, because the Pods may change.
func fetchReport(ctx context.Context, flags *clientFlags, config *rest.Config) (statustable.Report, error) {
	hub, view, err := fetchView(ctx, flags, config)
	if err != nil {
		return statustable.Report{}, err
	}
	defer hub.Close()
	filter := status.AttachmentFilter{Health: []status.HealthState{status.Broken, status.Attention}}
	trouble, err := listVolumes(ctx, hub, view, filter, statustable.MostInTrouble, func(status.Attachment) bool { return true })
	_ = addPods(ctx, config, trouble.Worst()) // without them, the claims are shown
	return statustable.NewReport(view, trouble, err, time.Now()), nil
}

// fetchView finds and asks all replicas. The caller closes the Hub. It is an error if none answers.
func fetchView(ctx context.Context, flags *clientFlags, config *rest.Config) (*hubclient.Hub, hubclient.View, error) {
	hub, err := flags.hub(ctx, config)
	if err != nil {
		return nil, hubclient.View{}, err
	}
	view := hub.View(ctx)
	if !view.Reached() {
		hub.Close()
		return nil, view, fmt.Errorf("no hub has answered: %s", terminal.Line(strings.Join(view.Problems(), "; ")))
	}
	return hub, view, nil
}
