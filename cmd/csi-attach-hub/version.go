package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

// version is set by the build (-ldflags -X) from git.
var version = "unknown"

func newVersionCommand() *cobra.Command {
	c := newCommand("version", "Print the version of this build", func(c *cobra.Command, _ []string) error {
		_, err := fmt.Fprint(c.OutOrStdout(), versionLine())
		return err
	})
	c.Args = cobra.NoArgs
	return c
}

func versionLine() string {
	return fmt.Sprintf("csi-attach-hub %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
