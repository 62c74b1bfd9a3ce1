package main

import (
	"github.com/spf13/cobra"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func newSchemaCommand() *cobra.Command {
	c := newCommand("schema", "Print the JSON Schema of drivers.yaml, for editors", func(c *cobra.Command, _ []string) error {
		_, err := c.OutOrStdout().Write(registry.Schema())
		return err
	})
	c.Args = cobra.NoArgs
	return c
}
