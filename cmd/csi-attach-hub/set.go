package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const setHelp = `Change settings of one driver in drivers.yaml, and print the lines that changed.

The file is a drivers.yaml, or a ConfigMap of the cluster that holds it under the key drivers.yaml or under its only key:

  csi-attach-hub set drivers.yaml ebs.csi.aws.com mode=active retry.max=30s timeout-
  csi-attach-hub set configmap/csi-attach-hub/csi-attach-hub-drivers ebs.csi.aws.com mode=active

KEY=VALUE sets a key of the driver's entry, KEY- removes it; "retry.max" is max under retry. A driver without an entry gets
one, which needs endpoint=VALUE. All other lines and the comments stay; a key that is removed takes the comments inside it
along. A file whose form does not allow that is refused, for example one with entries in one bracket list. Nothing is written
if "validate" would refuse the result; mistakes in the entries of other drivers do not count, and are printed.

A file keeps its owner and mode. If a tool writes the ConfigMap from a repository, change the file there: the tool would undo
the change.

The command needs the rights of its user only: get and update on the ConfigMap.`

func newSetCommand() *cobra.Command {
	var client clientFlags
	var dryRun bool
	c := newCommand("set FILE|configmap/NAMESPACE/NAME DRIVER KEY=VALUE|KEY-...", "Change settings of a driver in drivers.yaml or in the ConfigMap that holds it",
		func(c *cobra.Command, args []string) error {
			var changes []registry.Change
			for _, text := range args[2:] {
				change, err := registry.ParseChange(text)
				if err != nil {
					return err
				}
				changes = append(changes, change)
			}
			place, err := client.placeOf(c.Context(), args[0])
			if err != nil {
				return err
			}
			var left registry.Errors
			before, after, err := place.change(func(before []byte) (after []byte, err error) {
				after, left, err = registry.ChangeDriver(args[0], before, args[1], changes)
				return after, err
			}, dryRun)
			if err != nil {
				return err
			}
			for _, e := range left {
				fmt.Fprintln(c.ErrOrStderr(), "Warning: the entry of another driver is still wrong, and the hub rejects the file:", terminal.Line(e.Error()))
			}
			return printChanged(c.OutOrStdout(), args[0], string(before), string(after), dryRun)
		})
	c.Long = setHelp
	c.Args = cobra.MinimumNArgs(3)
	client.addAccess(c.Flags(), ", for a ConfigMap")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "print what would change, and write nothing")
	return c
}

// place holds a drivers.yaml.
type place interface {
	// change replaces the text by what edit makes of it, unless that fails, changes nothing or is tried only. It returns
	// the text before and after.
	change(edit func([]byte) ([]byte, error), dryRun bool) (before, after []byte, err error)
}

// printChanged prints the lines that changed, as diff -u does without context.
func printChanged(out io.Writer, name, before, after string, dryRun bool) error {
	name = terminal.Line(name)
	if before == after {
		_, err := fmt.Fprintf(out, "%s: nothing to change\n", name)
		return err
	}
	a, b := strings.SplitAfter(before, "\n"), strings.SplitAfter(after, "\n")
	start := 0
	for start < min(len(a), len(b)) && a[start] == b[start] {
		start++
	}
	end := 0
	for end < min(len(a), len(b))-start && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	done := "changed"
	if dryRun {
		done = "would change"
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s: %s\n@@ -%d,%d +%d,%d @@\n", name, done, start+1, len(a)-end-start, start+1, len(b)-end-start)
	writeLines(&text, "-", a[start:len(a)-end])
	writeLines(&text, "+", b[start:len(b)-end])
	_, err := io.WriteString(out, text.String())
	return err
}

// writeLines writes lines with a sign. What a terminal would act on becomes visible; the indentation stays.
func writeLines(out *strings.Builder, sign string, lines []string) {
	for _, line := range lines {
		text := strings.TrimLeft(line, " ")
		out.WriteString(sign + line[:len(line)-len(text)] + terminal.Line(text) + "\n")
	}
}
