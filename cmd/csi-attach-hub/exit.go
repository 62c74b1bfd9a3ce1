package main

import (
	"errors"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
)

// The exit codes of all commands.
const (
	exitTrouble  = 1
	exitUsage    = 2
	exitNoAnswer = 3
)

// exitHelp is the table of the exit codes in --help. deploy/OPERATE.md has it too.
const exitHelp = `

Exit codes of all commands:
  0  fine
  1  trouble: what was asked about is not in order, or the command failed
  2  usage: the command line is wrong, or names what does not exist
  3  no answer: the cluster or the hub could not be asked, or what the answer needs could not be read`

// exitError ends the program with an exit code of its own.
type exitError struct {
	code int
	err  error // to be printed, or nil
}

func (e exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e exitError) Unwrap() error { return e.err }

// withCode gives an error an exit code, unless it has one.
func withCode(code int, err error) error {
	if _, has := errors.AsType[exitError](err); err == nil || has {
		return err
	}
	return exitError{code, err}
}

// ofFile is an error about a file or folder. If there is none, the command line is wrong.
func ofFile(path string, err error) error {
	if _, missing := os.Stat(path); errors.Is(missing, fs.ErrNotExist) {
		return withCode(exitUsage, err)
	}
	return err
}

// withExitCode returns a function for RunE whose errors have an exit code.
func withExitCode(do func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error { return withCode(exitTrouble, do(c, args)) }
}
