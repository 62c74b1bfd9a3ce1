package bench

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// inParallel is how many requests this program has in flight. More makes nothing faster
// on a small machine.
const inParallel = 32

// each does something for each item, many at once, in about their order. It blocks until
// all is done or something fails.
func each[T any](ctx context.Context, items []T, do func(context.Context, T) error) error {
	group, working := errgroup.WithContext(ctx)
	next := make(chan T)
	for range min(inParallel, len(items)) {
		group.Go(func() error {
			for item := range next {
				if err := do(working, item); err != nil {
					return err
				}
			}
			return nil
		})
	}
	group.Go(func() error {
		defer close(next)
		for _, item := range items {
			select {
			case next <- item:
			case <-working.Done():
				return nil // whoever failed has the error, or ctx has
			}
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}
