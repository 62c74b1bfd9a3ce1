package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/adopt"
	"github.com/csi-attach-hub/csi-attach-hub/internal/explain"
)

// flagValues complete the values of flags: "COMMAND --FLAG" of one subcommand, "--FLAG" of all. A value that is the
// name of a file is completed by the shell, any other is not completed.
var flagValues = map[string]cobra.CompletionFunc{
	"status --output":    oneFrom(statusFormats...),
	"volumes --output":   oneFrom(volumesFormats...),
	"explain --output":   oneFrom(explainFormats...),
	"validate --output":  oneFrom(validateFormats...),
	"preflight --output": oneFrom("table", "json"),
	"adopt --output":     adoptOutputs,
	"adopt --mode":       oneFrom(adopt.Modes...),
	"adopt --step":       oneFrom(adopt.StepObserve, adopt.StepActive),
	"--certificates":     oneFrom(adopt.AllCertificates...),
	"--color":            oneFrom(colorChoices...),
	"--fail-on":          oneFrom(failChoices...),
	"--logging-format":   oneFrom("text", "json"),
	"--state":            listFrom(status.AttachmentStates),
	"--health":           listFrom(status.HealthStates),
	"--context":          contexts,
	"--namespace":        namesAt("/api/v1/namespaces"),
	"--hub-namespace":    namesAt("/api/v1/namespaces"),
	"--driver":           namesAt(namePaths[explain.Driver]),
	"--node":             namesAt(namePaths[explain.Node]),
}

// addCompletions tells cobra what completes flags and arguments. Only a process that answers a shell needs it.
func addCompletions(c *cobra.Command) {
	switch {
	case c.Name() == "explain":
		c.ValidArgsFunction = completeQuestion
	case c.Name() == "set":
		c.ValidArgsFunction = completeSet
	case c.Name() == "adopt":
		c.ValidArgsFunction = completeInput
	case !strings.Contains(c.Use, " "): // it takes no arguments, so the shell must not offer files
		c.ValidArgsFunction = cobra.NoFileCompletions
	}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		var value string
		value, f.Usage = pflag.UnquoteUsage(f) // cobra would show the backquotes
		complete := flagValues["--"+f.Name]
		if own := flagValues[c.Name()+" --"+f.Name]; own != nil {
			complete = own
		}
		if complete == nil {
			if slices.Contains([]string{"file", "folder", "dir", "directory"}, strings.ToLower(value)) {
				return
			}
			complete = cobra.NoFileCompletions
		}
		if err := c.RegisterFlagCompletionFunc(f.Name, complete); err != nil {
			panic(err) // only for a flag that the command does not have
		}
	})
	for _, sub := range c.Commands() {
		addCompletions(sub)
	}
}

// oneFrom completes one of the values.
func oneFrom[T ~string](values ...T) cobra.CompletionFunc {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = string(v)
	}
	return cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
}

// adoptOutputs completes the output of adopt. Behind KIND= the user writes a folder: a shell would put it in the place of KIND=.
func adoptOutputs(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	if strings.Contains(typed, "=") {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	found := startingWith(typed, []string{outputText, outputJSON, outputKustomize + "=", outputFlux + "=", outputPostRenderer, outputHelmPlugin + "="})
	if slices.ContainsFunc(found, func(v string) bool { return strings.HasSuffix(v, "=") }) {
		return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// listFrom completes the last of several values with commas between them, with those that are not there yet.
func listFrom[T ~string](values []T) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		before := typed[:strings.LastIndex(typed, ",")+1]
		there := strings.Split(before, ",")
		var lists []string
		for _, v := range values {
			if !slices.Contains(there, string(v)) {
				lists = append(lists, before+string(v))
			}
		}
		return lists, cobra.ShellCompDirectiveNoFileComp
	}
}
