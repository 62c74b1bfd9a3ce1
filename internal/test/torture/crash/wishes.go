package crash

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// fulfil waits until every wish is fulfilled. A wish that is not fulfilled is a finding. Without a crash it then waits for
// the last steps, so that the recorded steps are all.
func (r *run) fulfil(ctx context.Context) error {
	err := r.awaitWishes(ctx, "not reached", func(t *trial) wish { return t.Scenario.wish })
	if err == nil && !r.crashes() && len(r.findings) == 0 {
		err = r.await(ctx, "its last step is done", func(t *trial) bool { return t.Scenario.last == "" || t.tapes[t.victim()].has(t.Scenario.last) })
	}
	r.steps = map[int][]string{}
	for i, t := range r.trials {
		r.steps[i] = t.tapes[t.victim()].recorded()
	}
	return err
}

// tearDown deletes everything: what is kept too long shows now. It does nothing if a finding is there already: each wait
// for what never comes takes wishTimeout.
func (r *run) tearDown(ctx context.Context) error {
	if len(r.findings) > 0 {
		return nil
	}
	err := r.each(ctx, func(ctx context.Context, t *trial) error {
		for va := range t.Scenario.wish.attached {
			if err := t.detach(ctx, va); err != nil {
				return err
			}
		}
		for _, v := range t.Scenario.wish.volumes {
			if err := t.deleteVolume(ctx, v); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return r.awaitWishes(ctx, "not detached and deleted", func(*trial) wish { return wish{} })
}

// awaitWishes waits for a wish of each trial, and notes findings where it stays unfulfilled.
func (r *run) awaitWishes(ctx context.Context, what string, of func(*trial) wish) error {
	ctx, cancel := context.WithTimeout(ctx, wishTimeout)
	defer cancel()
	missing := map[int][]string{}
	err := waitUntil(ctx, "all is as wished", func() bool {
		now, err := r.list(ctx)
		if err != nil || r.touch(ctx) != nil {
			return false
		}
		clear(missing)
		for i, t := range r.trials {
			if m := t.missing(now, of(t)); len(m) > 0 {
				missing[i] = m
			}
		}
		return len(missing) == 0
	})
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	for i, m := range missing {
		r.findings[i] = append(r.findings[i], fmt.Sprintf("%s: %q", what, slices.Sorted(slices.Values(m))))
	}
	return nil
}
