package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
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
	root, args := rootCommand(os.Args[0], args)
	if len(args) > 0 && strings.HasPrefix(args[0], "-") { // no subcommand: csi-attacher has none
		args = withTwoDashes(args, root.Flags())
	}
	root.AddCommand(subcommands()...)
	helpAsCalled(root)
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) { // or without descriptions
		addCompletions(root)
	}
	if err := unknownCommand(root, args); err != nil {
		fmt.Fprintln(stderr, asCalled(root, err.Error()))
		return 1
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if c, err := root.ExecuteContextC(ctx); err != nil {
		if text := asCalled(root, suggestFlag(c, err).Error()); text != "" {
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
		newAdoptCommand(), newPreflightCommand(), newValidateCommand(), newSetCommand(), newSchemaCommand(),
		newProxyCommand(), newCompletionCommand(), newVersionCommand(),
	}
}

// newCommand returns a command that prints no errors: run prints them.
func newCommand(use, short string, do func(*cobra.Command, []string) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, RunE: do, SilenceUsage: true, SilenceErrors: true}
}
