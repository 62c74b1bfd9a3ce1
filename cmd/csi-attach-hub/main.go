package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	captureLogs()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run runs the program and returns its exit code.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newHubCommand()
	if strings.HasPrefix(filepath.Base(os.Args[0]), "kubectl-") {
		root.RunE = nil // a hub with a user's kubeconfig would take the leases
	}
	if len(args) > 0 && strings.HasPrefix(args[0], "-") { // no subcommand: csi-attacher has none
		args = withTwoDashes(args, root.Flags())
	}
	root.AddCommand(subcommands()...)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.ExecuteContext(ctx); err != nil {
		if text := err.Error(); text != "" {
			fmt.Fprintln(stderr, text)
		}
		return exitCode(err)
	}
	return 0
}

// subcommands returns all commands but that of the hub itself.
func subcommands() []*cobra.Command {
	return []*cobra.Command{
		newStatusCommand(), newVolumesCommand(), newExplainCommand(),
		newAdoptCommand(), newValidateCommand(), newSchemaCommand(),
		newVersionCommand(),
	}
}

// newCommand returns a command that prints no errors: run prints them.
func newCommand(use, short string, do func(*cobra.Command, []string) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, RunE: do, SilenceUsage: true, SilenceErrors: true}
}
