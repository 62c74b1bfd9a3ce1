package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func newValidateCommand() *cobra.Command {
	c := newCommand("validate FILE...", "Check drivers.yaml files (- for stdin): print every mistake and warning with its line; exit code 1 for a mistake",
		validate)
	c.Args = cobra.MinimumNArgs(1)
	return c
}

func validate(c *cobra.Command, files []string) error {
	var problems []error
	for _, file := range files {
		config, err := parse(c, file)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		for _, w := range config.Warnings() {
			fmt.Fprintln(c.ErrOrStderr(), w)
		}
		fmt.Fprintf(c.OutOrStdout(), "%s: ok, %d drivers\n", file, len(config.Drivers()))
	}
	return errors.Join(problems...)
}

func parse(c *cobra.Command, file string) (*registry.Config, error) {
	if file == "-" {
		return registry.ParseReader("stdin", c.InOrStdin())
	}
	return registry.ParseFile(file)
}
