package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/grpclog"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// version is set by the build (-ldflags -X) from git.
var version = "unknown"

func main() {
	captureLogs()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run runs the program and returns its exit code.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cobra.EnableCommandSorting = false
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
		exit := exitError{code: exitUsage} // by cobra: whatever the commands return has a code
		errors.As(err, &exit)
		return exit.code
	}
	return 0
}

// subcommands returns all commands but that of the hub itself.
func subcommands() []*cobra.Command {
	return []*cobra.Command{
		newStatusCommand(), newVolumesCommand(), newExplainCommand(),
		newValidateCommand(), newAdoptCommand(), newSchemaCommand(),
		newVersionCommand(),
	}
}

// printHelp prints the help of the program: its commands, then the flags of the hub by group.
func printHelp(root *cobra.Command, groups cliflag.NamedFlagSets) {
	text := root.Short + ".\n\nUsage:\n  csi-attach-hub COMMAND [flags]\n"
	if root.Runnable() {
		text += "  csi-attach-hub [flags]          run the hub\n"
	}
	text += "\nCommands:\n"
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() || c.Name() == "help" {
			text += fmt.Sprintf("  %-11s %s\n", c.Name(), c.Short)
		}
	}
	text += "\nRun \"csi-attach-hub COMMAND --help\" for the flags of a command." + exitHelp + "\n"
	for _, name := range groups.Order {
		if width, _ := terminalWidth(root.OutOrStdout()); root.Runnable() {
			text += "\n" + name + ":\n" + groups.FlagSets[name].FlagUsagesWrapped(width)
		}
	}
	_, _ = io.WriteString(root.OutOrStdout(), text) // nobody reads it
}

// newCommand returns a command that prints no errors: run prints them.
func newCommand(use, short string, do func(*cobra.Command, []string) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, SilenceUsage: true, SilenceErrors: true, RunE: withExitCode(do)}
}

// withoutArgs is newCommand for a command that takes no arguments.
func withoutArgs(use, short string, do func(*cobra.Command, []string) error) *cobra.Command {
	c := newCommand(use, short, do)
	c.Args = cobra.NoArgs
	return c
}

func newVersionCommand() *cobra.Command {
	return withoutArgs("version", "Print the version of this build", func(c *cobra.Command, _ []string) error {
		_, err := fmt.Fprint(c.OutOrStdout(), versionLine())
		return err
	})
}

func versionLine() string {
	return fmt.Sprintf("csi-attach-hub %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func newSchemaCommand() *cobra.Command {
	return withoutArgs("schema", "Print the JSON Schema of drivers.yaml, for editors", func(c *cobra.Command, _ []string) error {
		_, err := c.OutOrStdout().Write(registry.Schema())
		return err
	})
}

// captureLogs has the loggers of Go's library and of gRPC write through klog: with --logging-format=json every line
// of the log is JSON. It must be called before gRPC is used.
func captureLogs() {
	log.SetFlags(0)
	log.SetOutput(klogWriter("Go library"))
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, klogWriter("gRPC"))) // errors only, as by default
}

// klogWriter writes lines of another logger, whose name is their message.
type klogWriter string

// Write implements io.Writer.
func (w klogWriter) Write(line []byte) (int, error) {
	klog.Background().Info(string(w), "problem", strings.TrimSpace(string(line)))
	return len(line), nil
}
