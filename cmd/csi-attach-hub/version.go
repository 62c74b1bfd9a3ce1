package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

// version is set by the build (-ldflags -X) from git.
var version = "unknown"

func newVersionCommand() *cobra.Command {
	c := newCommand("version", "Say which build this is", func(c *cobra.Command, _ []string) error {
		fmt.Fprintf(c.OutOrStdout(), "csi-attach-hub %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		return nil
	})
	c.Args = cobra.NoArgs
	return c
}
