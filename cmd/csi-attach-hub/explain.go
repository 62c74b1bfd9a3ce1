package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/csi-attach-hub/csi-attach-hub/internal/explain"
)

// exitUnknown is the exit code without an answer, the same as for explain.NotKnown.
const exitUnknown = 3

func newExplainCommand() *cobra.Command {
	var flags clientFlags
	c := newCommand("explain VOLUMEATTACHMENT|pv/NAME|pvc/NAMESPACE/NAME|pod/NAMESPACE/NAME",
		"Say why a volume is not attached, and what to do; exit code 0 attached, 1 waiting, 2 not found, 3 not known",
		func(c *cobra.Command, args []string) error {
			return unanswered(flags.explain(c.Context(), args[0], c.OutOrStdout(), c.ErrOrStderr()))
		})
	// A mistake in the command line must not have the exit code of an answer.
	c.Args = func(c *cobra.Command, args []string) error { return unanswered(cobra.ExactArgs(1)(c, args)) }
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
func (f *clientFlags) explain(ctx context.Context, asked string, out, errOut io.Writer) error {
	question, err := explain.ParseQuestion(asked)
	if err := errors.Join(err, f.check()); err != nil {
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
	hub, err := f.hub(ctx, config, errOut)
	sources := explain.Sources{Kube: kube, Namespace: f.hubNamespaces()[0]}
	if err != nil {
		sources.HubErr = err
	} else {
		defer hub.Close()
		sources.Hub = hub
	}
	facts, err := explain.Gather(ctx, question, sources)
	if err != nil {
		return err
	}
	report := explain.Explain(facts)
	if f.output == "json" {
		err = printJSON(out, report)
	} else {
		_, err = io.WriteString(out, report.Text())
	}
	if code := report.Result.ExitCode(); err == nil && code != 0 {
		return exitError{code: code}
	}
	return err
}
