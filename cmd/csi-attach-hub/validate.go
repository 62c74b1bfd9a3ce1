package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func newValidateCommand() *cobra.Command {
	c := newCommand("validate FILE...", "Check drivers.yaml files: every mistake with its line, exit code 1 if there is any", validate)
	c.Args = cobra.MinimumNArgs(1)
	return c
}

func validate(c *cobra.Command, files []string) error {
	var problems []error
	for _, file := range files {
		config, err := registry.ParseFile(file)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		fmt.Fprintf(c.OutOrStdout(), "%s: ok, %d drivers\n", file, len(config.Drivers()))
	}
	return errors.Join(problems...)
}
