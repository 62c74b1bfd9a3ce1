package crash

import (
	"context"
	"time"
)

// lagAround does something for all trials, and lets the watch of the process that takes over lag from before or after that.
func (r *run) lagAround(ctx context.Context, do func(context.Context, *trial) error) error {
	resource := r.Lag.Resource
	if resource != "" && !r.Lag.Late {
		r.successor().proxy.Lags[resource].Begin()
	}
	if err := r.each(ctx, do); err != nil || !r.Lag.Late {
		return err
	}
	if err := r.caughtUp(ctx, resource); err != nil {
		return err
	}
	r.successor().proxy.Lags[resource].Begin()
	return nil
}

// takeOver lets the other process take over.
func (r *run) takeOver(ctx context.Context) error {
	if !r.crashes() && (r.ending() == Killed || r.ending() == TakenOver) {
		return nil
	}
	if !r.crashes() {
		err := r.await(ctx, "the lease is released", func(t *trial) bool { return r.first(t).has(leaseReleased + " #1") })
		if err != nil {
			return err
		}
	} else if err := r.expire(ctx); err != nil {
		return err
	}
	if r.ending() == TakenOver {
		if err := r.successor().configure("active"); err != nil {
			return err
		}
	} else {
		close(r.successor().proxy.compete)
	}
	if r.Lag.Resource == "" {
		return nil
	}
	err := r.await(ctx, "the other process leads", func(t *trial) bool { return t.tapes[1-t.victim()].isLeading() })
	if err != nil {
		return err
	}
	time.Sleep(lagTime)
	r.successor().proxy.Lags[r.Lag.Resource].End()
	return nil
}
