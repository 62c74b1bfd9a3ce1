package torture

import (
	"context"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// earlyMoves: in a calm run a pod deletes its VolumeAttachment as soon as it is made in one of so
// many moves.
const earlyMoves = 8

// CalmLoad is the load of a run without faults.
type CalmLoad struct {
	Volumes int           // of each driver
	Latency time.Duration // of the drivers' calls
}

// Calm lets pods attach and detach without any fault while act runs, and then checks what Run
// checks. It starts one hub. Calm blocks until everything that it has started has ended. It returns
// an error if act fails, if the hub ends, or if the run cannot go on.
func Calm(ctx context.Context, o Options, l CalmLoad, act func(context.Context, *testbed.Hub) error) (*Report, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	// Without a history the memory of this process does not grow with the run.
	calm := load{volumes: l.Volumes, latency: fakecsi.Latency{Base: l.Latency}, early: earlyMoves, defaults: "{retry: {max: 5s}, drift: {interval: 1s}}"}
	return carryOut(ctx, o, calm, func(ctx context.Context, r *run) error { return r.calm(ctx, act) })
}

func (r *run) calm(ctx context.Context, act func(context.Context, *testbed.Hub) error) error {
	if err := r.quiet(ctx); err != nil {
		return err
	}
	r.hasty.Store(true) // the one hub does not end
	r.resume()
	hub := r.hubs[0].current()
	err := testbed.WhileRunning(ctx, r.Processes(), func(ctx context.Context) error { return act(ctx, hub) })
	if err != nil {
		return err
	}
	if err := r.quiet(ctx); err != nil {
		return err
	}
	return r.finish(ctx)
}
