package main

import (
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/csi-attach-hub/csi-attach-hub/internal/explain"
)

func newExplainCommand() *cobra.Command {
	var flags clientFlags
	var verbose bool
	c := newCommand("explain [pod|pvc|pv|driver|node|va] NAME",
		"Say why a volume is not attached, or what is wrong with a driver or a node, and what to do",
		func(c *cobra.Command, args []string) error {
			return withCode(exitNoAnswer, flags.explain(c, strings.Join(args, "/"), verbose))
		})
	c.Long = c.Short + `.

Pods and claims of another namespace are pod NAMESPACE/NAME and pvc NAMESPACE/NAME, or given with --namespace.` + exitHelp
	c.Args = cobra.RangeArgs(1, 2)
	flags.add(c.Flags())
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "also show what is as it should be")
	return c
}

// explain prints the answer to a question. Its error is an exitError if an answer was printed.
func (f *clientFlags) explain(c *cobra.Command, asked string, verbose bool) error {
	ctx, out := c.Context(), c.OutOrStdout()
	namespace, err := f.askedNamespace()
	if err := errors.Join(err, oneOf("output", f.output, "table", "json")); err != nil {
		return err
	}
	question, err := explain.ParseQuestion(asked, namespace)
	if err != nil {
		return exitError{exitUsage, err}
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
	if err != nil && f.server != "" {
		return err
	} else if err != nil {
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
		_, err = io.WriteString(out, report.Text(tableStyle(out, false), verbose))
	}
	if code := report.ExitCode(); err == nil && code != 0 {
		return exitError{code: code}
	}
	return err
}
