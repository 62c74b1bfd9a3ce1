package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// rootCommand returns the command without its subcommands, and its arguments. The name of the program decides:
// kubectl runs kubectl-attach_hub as "kubectl attach-hub", and kubectl_complete-attach_hub with the words to complete.
func rootCommand(program string, args []string) (*cobra.Command, []string) {
	name := strings.TrimSuffix(filepath.Base(program), ".exe")
	if words, ok := strings.CutPrefix(name, "kubectl_complete-"); ok {
		return newPluginCommand(words), append([]string{cobra.ShellCompRequestCmd}, args...)
	}
	if words, ok := strings.CutPrefix(name, "kubectl-"); ok {
		return newPluginCommand(words), args
	}
	return newHubCommand(), args
}

// newPluginCommand returns the root of a kubectl plugin. words is the name of its file behind "kubectl-". It has no
// code of its own, so it prints help: a hub that starts by mistake with a user's kubeconfig would take the leases.
func newPluginCommand(words string) *cobra.Command {
	c := newCommand(hubName, "Show what csi-attach-hub does, and why a volume waits", nil)
	c.Long = c.Short + `.

The plugin runs subcommands only. It does not start a hub.

` + pluginCompletion
	c.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl " + strings.NewReplacer("-", " ", "_", "-").Replace(words)}
	c.Args = noWords
	c.Version = version
	c.SetVersionTemplate(versionLine())
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		unknown, ok := errors.AsType[*pflag.NotExistError](err)
		if !ok || c.HasParent() || newHubCommand().Flags().Lookup(writtenFlag(unknown)) == nil {
			return err
		}
		return fmt.Errorf("--%[2]s: %[1]s does not run the hub, and takes flags only after a subcommand; see %[1]s --help", c.CommandPath(), writtenFlag(unknown))
	})
	return c
}

// isPlugin reports whether kubectl calls the program of a command as its plugin.
func isPlugin(c *cobra.Command) bool { return c.Root().DisplayName() != c.Root().Name() }

// asCalled returns a text with its command lines as the user types them: for a plugin, "csi-attach-hub status"
// becomes "kubectl attach-hub status". In a Pod the program keeps its own name.
func asCalled(c *cobra.Command, text string) string {
	if !isPlugin(c) {
		return text
	}
	// kubectl is in no Pod, and preflight asks a socket from a Pod. The first pair that fits counts.
	pairs := []string{hubName + " preflight --socket", hubName + " preflight --socket"}
	for _, sub := range c.Root().Commands() {
		// The proxy names itself in its errors, which are no command lines. The completion of kubectl is another one.
		if name := sub.Name(); name != "proxy" && name != "completion" {
			pairs = append(pairs, "/"+hubName+" "+name, "/"+hubName+" "+name, hubName+" "+name, c.Root().DisplayName()+" "+name)
		}
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// helpAsCalled corrects the help texts of all subcommands with asCalled.
func helpAsCalled(root *cobra.Command) {
	for _, c := range root.Commands() {
		c.Long, c.Example = asCalled(c, c.Long), asCalled(c, c.Example)
	}
}
