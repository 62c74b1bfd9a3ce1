package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// noWords returns an error for an argument of a command that takes flags only, with the
// subcommand that was probably meant. The hub must not start because of a mistyped subcommand.
func noWords(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, sub := range c.Commands() {
		names = append(names, sub.Name())
	}
	if name, ok := registry.Nearest(args[0], names); ok {
		return fmt.Errorf("unknown command %q; did you mean %q?", args[0], name)
	}
	what := "unknown command"
	if !c.HasSubCommands() {
		what = "unexpected argument"
	}
	return fmt.Errorf("%s %q; see %s --help", what, args[0], c.CommandPath())
}

// unknownCommand returns an error if the first argument is neither a flag nor a subcommand. Otherwise cobra would
// complain about the flags behind it, which the hub does not have.
func unknownCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return nil
	}
	if found, _, err := root.Find(args); err == nil && found != root || args[0] == "help" || strings.HasPrefix(args[0], "__") {
		return nil
	}
	return noWords(root, args[:1])
}

// writtenFlag returns the name of an unknown flag, also one with a single dash: -confg=x.
func writtenFlag(unknown *pflag.NotExistError) string {
	if group := unknown.GetSpecifiedShortnames(); group != "" {
		name, _, _ := strings.Cut(group, "=")
		return name
	}
	return unknown.GetSpecifiedName()
}

// suggestFlag adds the flag that was probably meant to the error of an unknown flag; other
// errors stay as they are.
func suggestFlag(c *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return err
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if name, ok := registry.Nearest(writtenFlag(unknown), names); ok {
		return fmt.Errorf("%w; did you mean --%s?", err, name)
	}
	return err
}
