package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/hubclient"
	"github.com/csi-attach-hub/csi-attach-hub/internal/statustable"
	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
)

// volumesFormats are the values of --output.
var volumesFormats = []string{"table", "wide", "json", "name"}

// volumesFlags are the flags of the subcommand volumes.
type volumesFlags struct {
	clientFlags
	states, health []string
	driver, node   string
	all            bool
	noHeaders      bool
	color          string
}

func newVolumesCommand() *cobra.Command {
	var flags volumesFlags
	c := newCommand("volumes", "List the volumes that wait, fail or are stuck, with their Pods and claims, the worst first", func(c *cobra.Command, _ []string) error {
		filter, err := flags.filter()
		if err != nil {
			return err
		}
		return runVolumes(c.Context(), flags, filter, c.OutOrStdout(), c.ErrOrStderr())
	})
	c.Long = c.Short + `.

Each line is a VolumeAttachment, as the replica sees it that works for its driver. Those
that are attached or idle are left out, unless --all, --state or --health selects them.

Exit codes:
  0  the list is whole
  1  no replica answered, the list is not whole, or the command line is wrong`
	c.Example = `  csi-attach-hub volumes --state stuck,failing
  csi-attach-hub volumes --driver ebs.csi.aws.com --node node-3 -o wide
  csi-attach-hub volumes --state stuck -o name | xargs -n 1 kubectl describe`
	c.Args = cobra.NoArgs
	flags.clientFlags.add(c.Flags())
	c.Flags().Lookup("output").Usage = "output `format`, table, wide (more columns, whole texts), json or name (volumeattachment/NAME)"
	c.Flags().Lookup("namespace").Usage = "`namespace` of the claims and Pods; without it, all"
	c.Flags().StringSliceVar(&flags.states, "state", nil, "`states` to list, with commas between them: "+words(status.AttachmentStates))
	c.Flags().StringSliceVar(&flags.health, "health", nil, "`health` to list, with commas between them: "+words(status.HealthStates))
	c.Flags().StringVar(&flags.driver, "driver", "", "`name` of the CSI driver")
	c.Flags().StringVar(&flags.node, "node", "", "`name` of the node")
	c.Flags().BoolVar(&flags.all, "all", false, "also list volumes that are attached or idle")
	c.Flags().BoolVar(&flags.noHeaders, "no-headers", false, "print no line with the names of the columns")
	c.Flags().StringVar(&flags.color, "color", "auto", colorUsage)
	return c
}

func words[T ~string](values []T) string {
	plain := make([]string, len(values))
	for i, v := range values {
		plain[i] = string(v)
	}
	return strings.Join(plain, ", ")
}

// filter returns what the flags select.
func (f *volumesFlags) filter() (status.AttachmentFilter, error) {
	filter := status.AttachmentFilter{Driver: f.driver, Node: f.node}
	var errs [2]error
	filter.States, errs[0] = chosen("state", f.states, status.AttachmentStates)
	filter.Health, errs[1] = chosen("health", f.health, status.HealthStates)
	if len(f.states)+len(f.health) == 0 && !f.all {
		filter.States = slices.DeleteFunc(slices.Clone(status.AttachmentStates), func(s status.AttachmentState) bool { return s == status.Attached || s == status.Idle })
	}
	return filter, errors.Join(errs[0], errs[1],
		oneOf("output", f.output, volumesFormats...),
		oneOf("color", f.color, colorChoices...),
		excluded(f.all && len(f.states)+len(f.health) > 0, "--all", "--state or --health"),
	)
}

// chosen returns the values of a flag. One error names all wrong ones.
func chosen[T ~string](flag string, values []string, valid []T) ([]T, error) {
	var list []T
	var wrong []string
	for _, v := range values {
		if v = strings.TrimSpace(v); !slices.Contains(valid, T(v)) {
			wrong = append(wrong, fmt.Sprintf("%q", v))
		}
		list = append(list, T(v))
	}
	if len(wrong) > 0 {
		return nil, fmt.Errorf("--%s: %s: write one or more of %s", flag, strings.Join(wrong, ", "), words(valid))
	}
	return list, nil
}

// runVolumes prints the VolumeAttachments that the filter selects.
func runVolumes(ctx context.Context, flags volumesFlags, filter status.AttachmentFilter, out, errOut io.Writer) error {
	screen, err := newScreen(out, flags.color)
	if err != nil {
		return err
	}
	config, err := flags.config()
	if err != nil {
		return err
	}
	flags.warnIgnored(errOut)
	hub, view, err := fetchView(ctx, &flags.clientFlags, config)
	if err != nil {
		return err
	}
	defer hub.Close()
	for _, problem := range view.Problems() {
		fmt.Fprintln(errOut, "Warning: "+terminal.Line(problem))
	}
	list, gaps := listVolumes(ctx, hub, view, filter, 0, func(a status.Attachment) bool {
		idle := !flags.all && len(flags.states)+len(flags.health) == 0 && a.State == status.Unclaimed && a.Operation == ""
		return !idle && (flags.namespace == "" || strings.HasPrefix(a.Claim, flags.namespace+"/"))
	})
	if list.Total == 0 && gaps == nil && flags.driver != "" {
		if err := servedDriver(flags.driver, view); err != nil {
			return err
		}
	}
	all := list.Worst()
	if flags.output != "name" {
		if err := addPods(ctx, config, all); err != nil {
			fmt.Fprintln(errOut, "Warning: not all Pods are shown: "+terminal.Line(err.Error()))
		}
	}
	if err := flags.print(all, view, screen, errOut); err != nil {
		return err
	}
	if gaps != nil {
		return fmt.Errorf("the list is not whole: %s", terminal.Line(gaps.Error()))
	}
	return nil
}

// servedDriver returns an error if no replica serves the driver and no VolumeAttachment names it.
func servedDriver(name string, v hubclient.View) error {
	if v.Driver(name) != nil || v.Unclaimed[name] > 0 {
		return nil
	}
	var known []string
	for _, d := range v.Drivers {
		known = append(known, d.Name)
	}
	known = append(known, slices.Sorted(maps.Keys(v.Unclaimed))...)
	return fmt.Errorf("--driver %q: the hub serves no such driver: write one of %s", name, terminal.Line(strings.Join(known, ", ")))
}

// print prints the list in the format that --output names.
func (f *volumesFlags) print(all []status.Attachment, view hubclient.View, screen *screen, errOut io.Writer) error {
	now := time.Now()
	switch {
	case f.output == "json":
		return printVolumesJSON(screen.out, all, now)
	case len(all) == 0:
		_, err := fmt.Fprintln(errOut, "No volume matches.")
		return err
	case f.output == "name":
		var names strings.Builder
		for _, a := range all {
			names.WriteString("volumeattachment/" + terminal.Line(a.Name) + "\n")
		}
		_, err := io.WriteString(screen.out, names.String())
		return err
	}
	columns := statustable.Columns{Wide: f.output == "wide", Headers: !f.noHeaders}
	_, err := io.WriteString(screen.out, statustable.VolumeTable(all, view, columns, screen.style(), now))
	return err
}

// printVolumesJSON writes {"asOf": ..., "volumes": [...]}, one VolumeAttachment after the other: all at once
// would take several times the memory.
func printVolumesJSON(out io.Writer, all []status.Attachment, now time.Time) error {
	w := bufio.NewWriter(out)
	fmt.Fprintf(w, "{\n  \"asOf\": %q,\n  \"volumes\": [", now.UTC().Format(time.RFC3339Nano))
	for i, a := range all {
		body, err := json.MarshalIndent(a, "    ", "  ")
		if err != nil {
			return err
		}
		separator := ",\n    "
		if i == 0 {
			separator = "\n    "
		}
		fmt.Fprintf(w, "%s%s", separator, terminal.JSON(body))
	}
	if len(all) > 0 {
		fmt.Fprint(w, "\n  ")
	}
	fmt.Fprint(w, "]\n}\n")
	return w.Flush()
}
