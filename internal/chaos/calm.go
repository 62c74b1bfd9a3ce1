package chaos

import (
	"context"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// earlyMoves is how many moves of a pod there are in a calm run to one that deletes its
// VolumeAttachment as soon as it is made.
const earlyMoves = 8

// CalmLoad is the load of a run without faults.
type CalmLoad struct {
	Volumes int           // of each driver
	Latency time.Duration // of the drivers' calls
}

// Calm has pods attach and detach all the time without any fault, for as long as act runs, and
// then checks what Run checks. There is one hub. It blocks until all that it has started has ended. An error
// says that act has failed, that the hub has ended, or that the run could not go on.
func Calm(ctx context.Context, o Options, l CalmLoad, act func(context.Context, *testbed.Hub) error) (*Report, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	// The memory of a long run must not grow here, so nothing is written down.
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
