package torture

import (
	"context"
	"errors"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
)

// A takeover is the end of one hub's terms, in the middle of many moves, in the way that harms most when the next
// leader or the last one relies on what it knew. A takeover lasts about takeoverTime.
const takeoverTime = 5500 * time.Millisecond

// Moments of TakeoverPaused, since the leases cannot be renewed any more. A lease is lost 2.5 s after its last
// renewal, and may be taken 3 s after it. A call of 2 s that begins after the first second must not be made.
const (
	movesAt  = 1300 * time.Millisecond
	hangAt   = 1400 * time.Millisecond
	pauseAt  = 1900 * time.Millisecond
	resumeAt = 4200 * time.Millisecond
)

// takeOver carries out a takeover from the hub that leads most drivers, when both hubs lead: a hub that has just been
// started knows too much. The leases of a hub run out also where there is no other hub.
func (i *injector) takeOver(ctx context.Context, f Fault) (undo, error) {
	i.takeover.Lock() // one at a time
	defer i.takeover.Unlock()
	from, to := i.world.hubs[0], i.world.hubs[1]
	leads := i.world.history.leads
	await(ctx, func() bool { return leads(from.name) > 0 && (leads(to.name) > 0 || f.Kind == TakeoverPaused) })
	if leads(from.name) < leads(to.name) {
		from, to = to, from
	}
	switch {
	case !from.running():
		return nil, nil
	case f.Kind == TakeoverPaused:
		return i.takeOverPaused(ctx, from)
	case !to.running():
		return nil, nil
	}
	return i.takeOverStale(ctx, from, to)
}

// await blocks until a condition holds, for five seconds at most: faults need not be exact.
func await(ctx context.Context, holds func() bool) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for !holds() && ctx.Err() == nil {
		wait(ctx, 10*time.Millisecond)
	}
}

// takeOverPaused lets the leases of a hub run out while its calls hang, and pauses it before it notices. Its calls
// are not cancelled then, and must have ended by their deadlines before another hub may take the leases. When it
// goes on, it must not begin anything.
func (i *injector) takeOverPaused(ctx context.Context, r *replica) (undo, error) {
	began := time.Now()
	until := func(d time.Duration) { wait(ctx, time.Until(began.Add(d))) }
	end := r.proxy.begin(trouble{kind: APILeases, share: 1})
	defer end()
	until(movesAt)
	i.orderMoves()
	until(hangAt)
	release, err := i.hangCalls()
	if err != nil {
		return nil, err
	}
	i.orderMoves() // also those pods that had an order already
	until(pauseAt)
	_, err = r.pause("is paused, its leases are not renewed")
	if err == nil {
		until(resumeAt)
	}
	// Resume, also after an error: nothing must stay as it is.
	resumed := r.resume()
	wait(ctx, pace)
	return nothing, errors.Join(err, resumed, release())
}

// hangCalls makes all publishes and unpublishes hang until release.
func (i *injector) hangCalls() (release func() error, err error) {
	var hangs []fakecsi.Hang
	for _, m := range attachMethods {
		hangs = append(hangs, fakecsi.Hang{Method: m})
	}
	set := func(k fakecsi.Knobs) (err error) {
		for _, s := range i.world.storages {
			err = errors.Join(err, s.Backend.Set(k))
		}
		return err
	}
	return func() error { return set(fakecsi.Knobs{Release: hangs}) }, set(fakecsi.Knobs{Hang: hangs})
}

// orderMoves orders all pods to move at once.
func (i *injector) orderMoves() {
	for _, p := range i.world.pods {
		p.order(Recreated)
	}
}

const (
	// inFlight and done are how many publishes are in flight when the next leader begins to see nothing, and how many
	// of them end until it leads.
	inFlight, done = 3, 5
	// seen is how long the next leader takes to see what was written.
	seen = 50 * time.Millisecond
	// staleFor is how long the next leader sees nothing.
	staleFor = 2 * time.Second
)

// unhurried makes calls take as long as moves do: in the middle of them most VolumeAttachments are in a state that
// soon is no longer true.
var unhurried = fakecsi.Latency{Base: 200 * time.Millisecond, Jitter: 300 * time.Millisecond}

// takeOverStale ends the terms of a hub while the other one does not see the last changes of the VolumeAttachments.
// A leader that relied on its cache alone would repeat what was done. A hub that must live on is paused instead of
// stopped, until its leases were taken.
func (i *injector) takeOverStale(ctx context.Context, r, other *replica) (undo, error) {
	if err := i.setLatency(unhurried); err != nil {
		return nil, err
	}
	i.orderMoves()
	await(ctx, func() bool { publishing, _ := i.world.history.busy(r.name); return publishing >= inFlight })
	wait(ctx, seen)
	_, before := i.world.history.busy(r.name)
	lag := other.proxy.Lags["volumeattachments"]
	lag.Begin()
	defer lag.End()
	i.world.history.add(other.name, "sees no change of VolumeAttachments")
	i.world.still.Store(true) // what the next leader still sees should stay wrong
	defer i.world.still.Store(false)
	await(ctx, func() bool { _, now := i.world.history.busy(r.name); return now >= before+done })
	if err := i.setLatency(i.world.load.latency); err != nil {
		return nil, err
	}
	back := r.start
	if r == i.world.hubs[0] && i.world.surviving.Load() {
		if _, err := r.pause("is paused"); err != nil {
			return nil, err
		}
		wait(ctx, leaseTime)
		back = func(context.Context) error { return r.resume() }
	} else if !r.stop(ctx) {
		return nil, nil
	}
	wait(ctx, staleFor)
	i.world.history.add(other.name, "sees changes of VolumeAttachments again")
	return back, nil
}

// leaseTime is the duration of a lease.
const leaseTime = 3 * time.Second

func (i *injector) setLatency(l fakecsi.Latency) (err error) {
	for _, s := range i.world.storages {
		err = errors.Join(err, s.Backend.Set(fakecsi.AttachLatency(l)))
	}
	return err
}
