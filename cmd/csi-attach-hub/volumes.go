package main

import (
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

// volumesFlags are the flags of the subcommand volumes.
type volumesFlags struct {
	clientFlags
	states, health []string
	driver, node   string
	all            bool
}

func newVolumesCommand() *cobra.Command {
	var flags volumesFlags
	c := newCommand("volumes", "List the volumes that wait, fail or are stuck, with their Pods and claims, the worst first", func(c *cobra.Command, _ []string) error {
		return flags.run(c)
	})
	c.Long = c.Short + `.

Each line is a VolumeAttachment, as the replica sees it that works for its driver. Those
that are attached or idle are left out, unless --all, --state or --health selects them.`
	c.Example = `  csi-attach-hub volumes --state stuck,failing
  csi-attach-hub volumes --driver ebs.csi.aws.com --node node-3 -o wide
  csi-attach-hub volumes --state stuck -o name | xargs -n 1 kubectl describe`
	c.Args = cobra.NoArgs
	flags.clientFlags.add(c.Flags())
	c.Flags().Lookup("output").Usage = "output `format`, table, wide (more columns, whole texts), json or name (volumeattachment/NAME)"
	c.Flags().Lookup("namespace").Usage = "`namespace` of the claims and Pods; without it, all"
	c.Flags().StringSliceVar(&flags.states, "state", nil, "`states` to list, with commas between them: "+strings.Join(words(status.AttachmentStates), ", "))
	c.Flags().StringSliceVar(&flags.health, "health", nil, "`health` to list, with commas between them: "+strings.Join(words(status.HealthStates), ", "))
	c.Flags().StringVar(&flags.driver, "driver", "", "`name` of the CSI driver")
	c.Flags().StringVar(&flags.node, "node", "", "`name` of the node")
	c.Flags().BoolVar(&flags.all, "all", false, "also list volumes that are attached or idle")
	c.MarkFlagsMutuallyExclusive("all", "state")
	c.MarkFlagsMutuallyExclusive("all", "health")
	return c
}

func words[T ~string](values []T) []string {
	var plain []string
	for _, v := range values {
		plain = append(plain, string(v))
	}
	return plain
}

// chosen returns the values of a flag.
func chosen[T ~string](flag string, values []string, valid []T) (list []T, err error) {
	for _, v := range values {
		list = append(list, T(v))
		err = errors.Join(err, oneOf(flag, v, words(valid)...))
	}
	return list, err
}

// run prints the VolumeAttachments that the flags select.
func (f *volumesFlags) run(c *cobra.Command) error {
	ctx, errOut := c.Context(), c.ErrOrStderr()
	states, wrongState := chosen("state", f.states, status.AttachmentStates)
	health, wrongHealth := chosen("health", f.health, status.HealthStates)
	if err := errors.Join(wrongState, wrongHealth, oneOf("output", f.output, "table", "wide", "json", "name")); err != nil {
		return err
	}
	open := !f.all && len(states)+len(health) == 0 // only those for which an operation is due
	if open {
		states = []status.AttachmentState{status.Attaching, status.Detaching, status.Waiting, status.Failing, status.Stuck, status.Unclaimed}
	}
	config, err := f.config()
	if err != nil {
		return err
	}
	f.warnIgnored(errOut)
	hub, view, err := f.view(ctx, config)
	if err != nil {
		return err
	}
	defer hub.Close()
	for _, problem := range view.Problems() {
		fmt.Fprintln(errOut, "Warning: "+terminal.Line(problem))
	}
	all := []status.Attachment{}
	filter := status.AttachmentFilter{Driver: f.driver, Node: f.node, States: states, Health: health}
	gaps := hub.Volumes(ctx, view, filter, func(a status.Attachment) {
		idle := a.State == status.Unclaimed && a.Operation == ""
		if !(open && idle) && (f.namespace == "" || strings.HasPrefix(a.Claim, f.namespace+"/")) {
			all = append(all, a)
		}
	})
	if len(all) == 0 && gaps == nil && f.driver != "" {
		if err := servedDriver(f.driver, view); err != nil {
			return err
		}
	}
	status.WorstFirst(all)
	if f.output != "name" {
		if err := addPods(ctx, config, all); err != nil {
			fmt.Fprintln(errOut, "Warning: not all Pods are shown: "+terminal.Line(err.Error()))
		}
	}
	if err := f.print(all, newScreen(c.OutOrStdout()), errOut); err != nil {
		return err
	}
	if gaps != nil {
		return fmt.Errorf("the list is not whole: %s", terminal.Line(gaps.Error()))
	}
	return nil
}

// servedDriver returns an error if no replica serves the driver and no VolumeAttachment names it.
func servedDriver(name string, v hubclient.View) error {
	known := slices.Collect(maps.Keys(v.Unclaimed))
	for _, d := range v.Drivers {
		known = append(known, d.Name)
	}
	if slices.Contains(known, name) {
		return nil
	}
	slices.Sort(known)
	return fmt.Errorf("--driver %q: the hub serves no such driver: write one of %s", name, terminal.Line(strings.Join(known, ", ")))
}

// print prints the list in the format that --output names.
func (f *volumesFlags) print(all []status.Attachment, screen *screen, errOut io.Writer) error {
	now, wide, text := time.Now(), f.output == "wide", ""
	switch {
	case f.output == "json":
		return printJSON(screen.out, struct {
			AsOf    time.Time           `json:"asOf"`
			Volumes []status.Attachment `json:"volumes"`
		}{now.UTC(), all})
	case len(all) == 0:
		_, err := fmt.Fprintln(errOut, "No volume matches.")
		return err
	case f.output == "name":
		for _, a := range all {
			text += "volumeattachment/" + terminal.Line(a.Name) + "\n"
		}
	default:
		text = statustable.Volumes(slices.Chunk(all, 1), wide, now).Text(screen.style(wide))
	}
	_, err := io.WriteString(screen.out, text)
	return err
}
