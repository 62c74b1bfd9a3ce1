package hub

import (
	"context"
	"sync"
)

// attempt is one call of a function in a goroutine of its own. A nil attempt is none.
type attempt[T any] struct {
	cancel   context.CancelFunc // ends the context of the function
	ended    chan struct{}      // closed when the function has returned
	value    T
	err      error
	panicked error // nil: the function did not panic
}

// try calls f in a goroutine of the group. The context of f ends with ctx or by cancel.
func try[T any](ctx context.Context, group *sync.WaitGroup, f func(context.Context) (T, error)) *attempt[T] {
	ctx, cancel := context.WithCancel(ctx)
	a := &attempt[T]{cancel: cancel, ended: make(chan struct{})}
	group.Go(func() {
		defer close(a.ended)
		defer cancel()
		contain(func(err error) { a.panicked = err }, func() { a.value, a.err = f(ctx) })
	})
	return a
}

// done returns a channel that is closed when the function has returned. For no attempt it
// is nil, which is never ready.
func (a *attempt[T]) done() <-chan struct{} {
	if a == nil {
		return nil
	}
	return a.ended
}

// result blocks until the function has returned, and returns its results. It panics if the
// function has panicked.
func (a *attempt[T]) result() (T, error) {
	<-a.ended
	if a.panicked != nil {
		panic(a.panicked)
	}
	return a.value, a.err
}

// stop ends the context of the function, if there is an attempt. It does not wait.
func (a *attempt[T]) stop() {
	if a != nil {
		a.cancel()
	}
}
