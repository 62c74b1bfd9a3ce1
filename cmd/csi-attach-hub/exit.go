package main

import "errors"

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

// exitCode returns the exit code of an error, 1 if it has none.
func exitCode(err error) int {
	if exit, ok := errors.AsType[exitError](err); ok {
		return exit.code
	}
	return 1
}
