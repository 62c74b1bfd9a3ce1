package testbed

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// WhileRunning acts with a context that ends when one of the processes does. Then that is the
// error. It returns when act has.
func WhileRunning(ctx context.Context, processes []*Process, act func(context.Context) error) error {
	ctx, fail := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer fail(nil)
	for _, p := range processes {
		watching.Go(func() {
			select {
			case <-p.Done():
				fail(fmt.Errorf("the %s has ended, exit code %d, its last lines:\n%s", p.name, p.ExitCode(), p.LastLines(20)))
			case <-ctx.Done():
			}
		})
	}
	err := act(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		// Not everything tells why a context has ended.
		return fmt.Errorf("%w: meanwhile: %w", cause, err)
	}
	return err
}
