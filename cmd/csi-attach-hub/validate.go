package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const validateHelp = `Check drivers.yaml files without contacting anything: print every mistake and warning with its line.

A DIR is a folder as --config takes it: all its *.yaml together are one configuration. A FILE is a drivers.yaml, or Kubernetes manifests
with a ConfigMap that holds one, or the files of a folder, under its keys *.yaml. Other objects are ignored. "-" reads stdin:

  kubectl -n csi-attach-hub get configmap csi-attach-hub-drivers -o yaml | csi-attach-hub validate -
  helm template csi-attach-hub deploy/chart -f mine.yaml | csi-attach-hub validate -

The exit code is 1 if a file has a mistake. Warnings do not change it.`

func newValidateCommand() *cobra.Command {
	c := newCommand("validate FILE|DIR...", "Check drivers.yaml files, folders or ConfigMaps with them (- for stdin)", func(c *cobra.Command, files []string) error {
		var problems []error
		for _, file := range files {
			problems = append(problems, validate(c, file))
		}
		return errors.Join(problems...)
	})
	c.Long = validateHelp
	c.Args = cobra.MinimumNArgs(1)
	return c
}

// validate checks a file, and prints the warnings and how many drivers a valid one has.
func validate(c *cobra.Command, file string) error {
	var configs []*registry.Config
	var err error
	if file == "-" {
		file = "stdin"
		data, failed := io.ReadAll(c.InOrStdin())
		if configs, err = registry.ParseManifest(file, data); failed != nil {
			configs, err = nil, registry.Errors{{File: file, Message: "cannot be read: " + failed.Error()}}
		}
	} else {
		configs, err = registry.ParseManifestFile(file)
		err = ofFile(file, err)
	}
	drivers := 0
	for _, config := range configs {
		for _, w := range config.Warnings() {
			fmt.Fprintln(c.ErrOrStderr(), w)
		}
		drivers += len(config.Drivers())
	}
	if err == nil {
		noun := "drivers"
		if drivers == 1 {
			noun = "driver"
		}
		fmt.Fprintf(c.OutOrStdout(), "%s: ok, %d %s\n", file, drivers, noun)
	}
	return err
}
