// Package panics keeps a panic from ending the process: one driver's odd answer must cost that driver
// a restart, and no other driver anything (external-attacher issue 502).
package panics

import (
	"fmt"
	"runtime/debug"
	"sync"
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

// Contain calls f, and calls fail with the error of a panic in it.
func Contain(fail func(error), f func()) {
	if err := Catch(f); err != nil {
		fail(err)
	}
}

// Go is Contain in a goroutine of the group.
func Go(group *sync.WaitGroup, fail func(error), f func()) {
	group.Go(func() { Contain(fail, f) })
}
