package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/client-go/rest"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/hubclient"
	"github.com/csi-attach-hub/csi-attach-hub/internal/statustable"
	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
)

// statusFlags are the flags of the subcommand status.
type statusFlags struct {
	clientFlags
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
	c.Flags().StringVar(&flags.failOn, "fail-on", "", "end with exit code 1 if a driver or a volume has this `health` or a worse one: broken or attention")
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

// run prints the status.
func (f *statusFlags) run(c *cobra.Command) error {
	err := oneOf("output", f.output, "table", "wide", "json")
	if f.failOn != "" {
		err = errors.Join(err, oneOf("fail-on", f.failOn, string(status.Broken), string(status.Attention)))
	}
	if err != nil {
		return err
	}
	f.warnIgnored(c.ErrOrStderr())
	report, err := f.report(c.Context())
	if err != nil {
		return err
	}
	if f.output == "json" {
		err = printJSON(c.OutOrStdout(), report)
	} else {
		_, err = io.WriteString(c.OutOrStdout(), report.Text(tableStyle(c.OutOrStdout(), f.output == "wide")))
	}
	if err == nil && f.failOn != "" && report.Summary.Health.Compare(status.HealthState(f.failOn)) <= 0 {
		return exitError{code: exitTrouble}
	}
	return err
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

// tableStyle returns how to draw tables on a terminal, a pipe or a file. wide is for all columns and whole texts.
func tableStyle(out io.Writer, wide bool) statustable.Style {
	width, isTerminal := terminalWidth(out)
	if wide {
		width = 0
	}
	return statustable.Style{Width: width, Wide: wide, Color: isTerminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// terminalWidth returns the width of a terminal, or the one that the program "watch" gives to what it runs; 0 if it is not known.
func terminalWidth(out io.Writer) (width int, isTerminal bool) {
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		width, _, _ = term.GetSize(int(file.Fd()))
		return width, true
	}
	width, _ = strconv.Atoi(os.Getenv("COLUMNS"))
	return width, false
}
