// Package panics keeps a panic from ending the process: one driver's odd answer must cost that driver
// a restart, and no other driver anything (external-attacher issue 502).
package panics

import (
	"fmt"
	"runtime/debug"
)

// Catch calls f, and returns nil when f has returned. If f panics, Catch returns an error that has the
// value of the panic and its stack.
func Catch(f func()) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("panic: %v\n%s", value, debug.Stack())
		}
	}()
	f()
	return nil
}
