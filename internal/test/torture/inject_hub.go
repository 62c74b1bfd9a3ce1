package torture

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// planeTime is how long the API server may take to start.
const planeTime = 2 * time.Minute

func (i *injector) beginHub(ctx context.Context, f Fault) (undo, error) {
	r := i.world.hubs[f.Target]
	switch f.Kind {
	case HubKill:
		if !r.kill() {
			return nil, nil
		}
		return r.start, nil
	case HubStop:
		if !r.stop(ctx) {
			return nil, nil
		}
		return r.start, nil
	case HubDoubled:
		if r.running() {
			return nil, nil
		}
		return func(ctx context.Context) error { r.stop(ctx); return nil }, r.start(ctx)
	}
	return i.pause(ctx, r, f)
}

// rush bounds how long pods have been moving when a hub is paused in the middle of their moves.
const rush = 400 * time.Millisecond

// pause pauses a hub. In half of the cases it orders all pods to move first: the hub then has calls in
// flight and more that wait. When the hub goes on without its leases, it must not make them.
func (i *injector) pause(ctx context.Context, r *replica, f Fault) (undo, error) {
	if random := f.random(); random.IntN(2) == 0 && r.running() {
		for _, p := range i.world.pods {
			p.order(Recreated)
		}
		wait(ctx, time.Duration(random.Int64N(int64(rush))))
	}
	paused, err := r.pause("is paused")
	if err != nil || !paused {
		return nil, err
	}
	return func(context.Context) error { return r.resume() }, nil
}

// beginAPI begins a trouble in the proxy of one hub.
func (i *injector) beginAPI(f Fault) undo {
	r, random := i.world.hubs[f.Target], f.random()
	switch f.Kind {
	case APIWatchesDrop:
		if r.proxy.dropWatches() == 0 {
			return nil
		}
		return nothing
	case APISilent:
		r.proxy.Shut()
		return func(context.Context) error { r.proxy.Open(); return nil }
	}
	end := r.proxy.begin(trouble{kind: f.Kind, share: 0.1 + 0.6*random.Float64(), delay: time.Duration(random.Int64N(int64(time.Second)))})
	return func(context.Context) error { end(); return nil }
}

// stopPlane stops the API server, at random gracefully or with SIGKILL.
func (i *injector) stopPlane(ctx context.Context, f Fault) (undo, error) {
	plane := i.world.Plane
	if f.random().IntN(2) == 0 {
		plane.Kill()
	} else if err := plane.StopAPIServer(ctx); err != nil {
		return nil, err
	}
	i.world.history.add("", "the API server is stopped")
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeoutCause(ctx, planeTime, errors.New("it does not start"))
		defer cancel()
		if err := plane.StartAgain(ctx); err != nil {
			return fmt.Errorf("start the API server again: %w", err)
		}
		i.world.history.add("", "the API server is ready")
		return nil
	}, nil
}
