package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
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
	c := newCommand("volumes", "List the volumes that wait or are in trouble, with their Pods and claims, the worst first", func(c *cobra.Command, _ []string) error {
		return withCode(exitNoAnswer, flags.run(c))
	})
	c.Long = c.Short + `.

Each line is a VolumeAttachment, as the replica sees it that works for its driver. Those
that are attached or idle and not in trouble are left out, unless --all, --state or
--health selects them.`
	c.Example = `  csi-attach-hub volumes --state stuck,failing
  csi-attach-hub volumes --driver ebs.csi.aws.com --node node-3 -o wide
  csi-attach-hub volumes --state stuck -o name | xargs -n 1 kubectl describe`
	c.Args = cobra.NoArgs
	flags.clientFlags.add(c.Flags())
	c.Flags().Lookup("output").Usage = "output `format`, table, wide (more columns, whole texts), json or name (volumeattachment/NAME)"
	c.Flags().Lookup("namespace").Usage = "`namespace` of the claims and Pods; without it, all"
	c.Flags().StringSliceVar(&flags.states, "state", nil, "`states` to list, with commas between them: "+status.Joined(status.AttachmentStates, ", "))
	c.Flags().StringSliceVar(&flags.health, "health", nil, "`health` to list, with commas between them: "+status.Joined(status.HealthStates, ", "))
	c.Flags().StringVar(&flags.driver, "driver", "", "`name` of the CSI driver")
	c.Flags().StringVar(&flags.node, "node", "", "`name` of the node")
	c.Flags().BoolVar(&flags.all, "all", false, "also list volumes that are attached or idle and not in trouble")
	c.MarkFlagsMutuallyExclusive("all", "state")
	c.MarkFlagsMutuallyExclusive("all", "health")
	return c
}

// chosen returns the values of a flag.
func chosen[T ~string](flag string, values []string, valid []T) (list []T, err error) {
	for _, v := range values {
		list = append(list, T(v))
		if !slices.Contains(valid, T(v)) {
			err = errors.Join(err, exitError{exitUsage, fmt.Errorf("--%s %q: write one or more of %s", flag, v, status.Joined(valid, ", "))})
		}
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
	f.warnIgnored(errOut)
	hub, view, config, err := f.view(ctx)
	if err != nil {
		return err
	}
	defer hub.Close()
	for _, problem := range view.Problems() {
		fmt.Fprintln(errOut, "Warning: "+terminal.Line(problem))
	}
	all, gaps := []status.Attachment{}, error(nil)
	open := !f.all && len(states)+len(health) == 0 // only those for which an operation is due, and those in trouble
	list := []status.AttachmentFilter{{Driver: f.driver, Node: f.node, States: states, Health: health}}
	if open {
		list = append(list, list[0])
		list[0].States = []status.AttachmentState{status.Attaching, status.Detaching, status.Waiting, status.Failing, status.Stuck, status.Unserved}
		list[1].States, list[1].Health = []status.AttachmentState{status.Attached, status.Idle}, []status.HealthState{status.Broken, status.Attention}
	}
	for i := 0; i < len(list) && gaps == nil; i++ {
		gaps = hub.Volumes(ctx, view, list[i], func(a status.Attachment) {
			idle := a.State == status.Unserved && a.Operation == "" && !a.Health.Needs()
			if !(open && idle) && (f.namespace == "" || strings.HasPrefix(a.Claim, f.namespace+"/")) {
				all = append(all, a)
			}
		})
	}
	if len(all) == 0 && gaps == nil && f.driver != "" && view.Driver(f.driver) == nil && view.Unserved[f.driver] == 0 {
		return exitError{exitUsage, fmt.Errorf("--driver %q: the hub serves no such driver: csi-attach-hub status lists those that it serves", f.driver)}
	}
	status.WorstFirst(all)
	if f.output != "name" {
		if err := addPods(ctx, config, all); err != nil {
			fmt.Fprintln(errOut, "Warning: not all Pods are shown: "+terminal.Line(err.Error()))
		}
	}
	if err := f.print(all, c.OutOrStdout(), errOut); err != nil {
		return err
	}
	if gaps != nil {
		return fmt.Errorf("the list is not whole: %s", terminal.Line(gaps.Error()))
	}
	return nil
}

// print prints the list in the format that --output names.
func (f *volumesFlags) print(all []status.Attachment, out, errOut io.Writer) error {
	now, wide, text := time.Now(), f.output == "wide", ""
	switch {
	case f.output == "json":
		return printJSON(out, struct {
			AsOf    time.Time           `json:"asOf"`
			Volumes []status.Attachment `json:"volumes"`
		}{now.UTC(), all})
	case len(all) == 0:
		none := "No volume matches."
		if !f.all && len(f.states)+len(f.health) == 0 && f.driver+f.node+f.namespace == "" {
			none = "No volume waits or is in trouble."
		}
		_, err := fmt.Fprintln(errOut, none)
		return err
	case f.output == "name":
		for _, a := range all {
			text += "volumeattachment/" + terminal.Line(a.Name) + "\n"
		}
	default:
		text = statustable.Volumes(slices.Chunk(all, 1), wide, now).Text(tableStyle(out, wide))
	}
	_, err := io.WriteString(out, text)
	return err
}
