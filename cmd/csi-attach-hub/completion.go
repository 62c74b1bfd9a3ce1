package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
)

// shells are the arguments of the subcommand completion.
var shells = []string{"bash", "zsh", "fish", "powershell"}

const completionHelp = `Print the script with which a shell completes subcommands, flags, and names of the cluster.

  source <(csi-attach-hub completion bash)    # for this shell; needs the package bash-completion
  csi-attach-hub completion bash > /etc/bash_completion.d/csi-attach-hub
  csi-attach-hub completion zsh > "${fpath[1]}/_csi-attach-hub"
  csi-attach-hub completion fish > ~/.config/fish/completions/csi-attach-hub.fish
  csi-attach-hub completion powershell | Out-String | Invoke-Expression

` + pluginCompletion

// pluginCompletion says how kubectl completes the plugin.
const pluginCompletion = `kubectl completes the plugin without a script, if the PATH has a link to it with this name:

  ln -s kubectl-attach_hub /usr/local/bin/kubectl_complete-attach_hub`

func newCompletionCommand() *cobra.Command {
	c := newCommand("completion bash|zsh|fish|powershell", "Print the completion script for a shell", func(c *cobra.Command, args []string) error {
		root, out := c.Root(), c.OutOrStdout()
		switch {
		case isPlugin(c):
			return fmt.Errorf("kubectl completes %q without a script; see %s --help", root.DisplayName(), c.CommandPath())
		case args[0] == "bash":
			return root.GenBashCompletionV2(out, true)
		case args[0] == "zsh":
			return root.GenZshCompletion(out)
		case args[0] == "fish":
			return root.GenFishCompletion(out, true)
		}
		return root.GenPowerShellCompletionWithDesc(out)
	})
	c.Long = completionHelp
	c.ValidArgs = shells
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) != 1 || !slices.Contains(shells, args[0]) {
			return fmt.Errorf("give one shell: %s; see %s --help", orList(shells), c.CommandPath())
		}
		return nil
	}
	return c
}
