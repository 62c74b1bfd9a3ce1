package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/csi-attach-hub/csi-attach-hub/internal/explain"
)

// explainFormats are the values of --output.
var explainFormats = []string{"table", "json"}

// exitUnknown is the exit code without an answer, the same as for explain.NotKnown.
const exitUnknown = 3

func newExplainCommand() *cobra.Command {
	var flags clientFlags
	c := newCommand("explain VOLUMEATTACHMENT|pod/NAME|pvc/NAME|pv/NAME|driver/NAME|node/NAME",
		"Say why a volume is not attached, or what is wrong with a driver or a node, and what to do",
		func(c *cobra.Command, args []string) error {
			return unanswered(flags.explain(c, args[0]))
		})
	c.Long = c.Short + `.

The exit code is 0 if the volume is attached or the driver or node is in order, 1 if something waits or needs attention or a
check of the driver is open, 2 if the object does not exist and 3 if the answer is not known. Pods and claims of another
namespace are pod/NAMESPACE/NAME and pvc/NAMESPACE/NAME, or given with --namespace.`
	// A mistake in the command line must not have the exit code of an answer.
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) != 1 {
			return unanswered(fmt.Errorf("give one object; see %s --help", c.CommandPath()))
		}
		return nil
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return unanswered(err) })
	flags.add(c.Flags())
	return c
}

// unanswered gives an error the exit code exitUnknown, unless it has an exit code.
func unanswered(err error) error {
	if _, answered := errors.AsType[exitError](err); err == nil || answered {
		return err
	}
	return exitError{exitUnknown, err}
}

// explain prints the answer to a question. Its error is an exitError if an answer was printed.
func (f *clientFlags) explain(c *cobra.Command, asked string) error {
	ctx, out := c.Context(), c.OutOrStdout()
	namespace, err := f.askedNamespace()
	if err := errors.Join(err, f.check()); err != nil {
		return err
	}
	question, err := explain.ParseQuestion(asked, namespace)
	if err != nil {
		return err
	}
	config, err := f.kube()
	if err != nil {
		return err
	}
	kube, err := newKubeClient(config)
	if err != nil {
		return err
	}
	hub, err := f.hub(ctx, config)
	sources := explain.Sources{Kube: kube, Namespace: f.hubNamespaceOrDefault(), Access: f.accessGiven()}
	if err != nil {
		sources.HubErr = err
	} else {
		defer hub.Close()
		sources.Hub = hub
	}
	report, err := explain.Explain(ctx, question, sources)
	if err != nil {
		return err
	}
	if f.output == "json" {
		err = printJSON(out, report)
	} else {
		_, err = io.WriteString(out, report.Text())
	}
	if code := report.ExitCode(); err == nil && code != 0 {
		return exitError{code: code}
	}
	return err
}
