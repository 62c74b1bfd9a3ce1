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

// statusFlags are the flags of the subcommand status.
type statusFlags struct {
	clientFlags
	watch  bool
	failOn string
}

func newStatusCommand() *cobra.Command {
	flags := statusFlags{clientFlags: clientFlags{clusterScoped: true}}
	c := newCommand("status", "Show the drivers of a running hub and the volumes in trouble, the worst first", func(c *cobra.Command, _ []string) error {
		return withCode(exitNoAnswer, flags.run(c))
	})
	c.Args = cobra.NoArgs
	flags.clientFlags.add(c.Flags())
	c.Flags().Lookup("output").Usage = "output `format`, table, wide (all columns, whole texts) or json"
	c.Flags().BoolVarP(&flags.watch, "watch", "w", false, "repeat every 2 seconds until interrupted")
	c.Flags().StringVar(&flags.failOn, "fail-on", "", "end with exit code 1 if a driver or a volume has this `health` or a worse one: broken or attention")
	c.MarkFlagsMutuallyExclusive("fail-on", "watch")
	return c
}

// oneOf returns an error that names the valid values of a flag, unless it has one of them.
func oneOf(flag, value string, valid ...string) error {
	if slices.Contains(valid, value) {
		return nil
	}
	last := len(valid) - 1
	return exitError{exitUsage, fmt.Errorf("--%s %q: write %s or %s", flag, value, strings.Join(valid[:last], ", "), valid[last])}
}

// run prints the status once, or with watch until the context of c ends.
func (f *statusFlags) run(c *cobra.Command) error {
	err := oneOf("output", f.output, "table", "wide", "json")
	if f.failOn != "" {
		err = errors.Join(err, oneOf("fail-on", f.failOn, string(status.Broken), string(status.Attention)))
	}
	if err != nil {
		return err
	}
	f.warnIgnored(c.ErrOrStderr())
	screen := newScreen(c.OutOrStdout())
	if f.watch {
		return f.repeat(c, screen)
	}
	report, err := f.report(c.Context())
	if err != nil {
		return err
	}
	if f.output == "json" {
		err = printJSON(screen.out, report)
	} else {
		_, err = io.WriteString(screen.out, report.Text(screen.style(f.output == "wide")))
	}
	if err == nil && f.failOn != "" && report.Summary.Health.Compare(status.HealthState(f.failOn)) <= 0 {
		return exitError{code: exitTrouble}
	}
	return err
}

// repeat prints the status until the context of c ends. A terminal shows the last answer while no replica answers.
func (f *statusFlags) repeat(c *cobra.Command, screen *screen) error {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	last := ""
	for {
		report, err := f.report(c.Context())
		switch {
		case c.Context().Err() != nil:
			return nil
		case err != nil && screen.file != nil:
			err = screen.redraw(fmt.Sprintf("No answer; asking again every %s: %s\n%s", watchInterval, terminal.Line(err.Error()), last))
		case err != nil:
			_, err = fmt.Fprintln(c.ErrOrStderr(), terminal.Line(err.Error())) // the next try may succeed
		case f.output == "json":
			err = printJSON(screen.out, report)
		default:
			last = report.Text(screen.style(f.output == "wide"))
			err = screen.redraw(last)
		}
		if err != nil {
			return err // the reader has gone
		}
		select {
		case <-c.Context().Done():
			return nil
		case <-ticker.C:
		}
	}
}

// report asks all replicas. It finds them each time, because the Pods may change.
func (f *statusFlags) report(ctx context.Context) (statustable.Report, error) {
	hub, view, config, err := f.view(ctx)
	if err != nil {
		return statustable.Report{}, err
	}
	defer hub.Close()
	var trouble []status.Attachment
	filter := status.AttachmentFilter{Health: []status.HealthState{status.Broken, status.Attention}}
	err = hub.Volumes(ctx, view, filter, func(a status.Attachment) { trouble = append(trouble, a) })
	report := statustable.NewReport(view, trouble, err, time.Now())
	_ = addPods(ctx, config, report.VolumesInTrouble) // without them, the claims are shown
	return report, nil
}

// view finds and asks all replicas. It is an error if none answers, otherwise the caller closes the Hub. config is the
// access to the Kubernetes API, nil if --server makes it unnecessary.
func (f *clientFlags) view(ctx context.Context) (hub *hubclient.Hub, view hubclient.View, config *rest.Config, err error) {
	if f.server == "" || f.kubeconfig != "" || f.kubeContext != "" {
		if config, err = f.kube(); err != nil {
			return nil, view, nil, err
		}
	}
	if hub, err = f.hub(ctx, config); err != nil {
		return nil, view, nil, err
	}
	if view = hub.View(ctx); !view.Reached() {
		hub.Close()
		return nil, view, nil, fmt.Errorf("no hub has answered: %s", terminal.Line(strings.Join(view.Problems(), "; ")))
	}
	return hub, view, config, nil
}
