package testbed

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// Each does something for each item, so many at once and in about their order. It blocks until
// all is done, or until something has failed, which is its error.
func Each[T any](ctx context.Context, parallel int, items []T, do func(context.Context, T) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, item := range items {
		group.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx) // where another item failed, its error is the one returned
			}
			return do(ctx, item)
		})
	}
	return group.Wait()
}
