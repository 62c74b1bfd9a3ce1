package torture

import (
	"context"
	"errors"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
)

// A takeover is the end of one hub's terms, in the middle of many moves, in the way that harms most when the next
// leader or the last one relies on what it knew. A takeover lasts about takeoverTime.
const takeoverTime = 5500 * ms

// Moments of TakeoverPaused, since the leases cannot be renewed any more. A lease is lost 2.5 s after its last
// renewal, and may be taken 3 s after it. A call of 2 s that begins after the first second must not be made.
const (
	movesAt  = 1300 * ms
	hangAt   = 1400 * ms
	pauseAt  = 1900 * ms
	resumeAt = 4200 * ms
)

// takeOver carries out a takeover from the hub that leads most drivers, when both hubs lead: a hub that has just been
// started knows too much. The leases of a hub run out also where there is no other hub.
func takeOver(ctx context.Context, w *world, f Fault) (undo, error) {
	from, to := w.hubs[0], w.hubs[1]
	leads := w.history.leads
	await(ctx, func() bool { return leads(from.name) > 0 && (leads(to.name) > 0 || f.Kind == TakeoverPaused) })
	if leads(from.name) < leads(to.name) {
		from, to = to, from
	}
	switch {
	case !from.running():
		return nil, nil
	case f.Kind == TakeoverPaused:
		return takeOverPaused(ctx, w, from)
	case !to.running():
		return nil, nil
	}
	return takeOverStale(ctx, w, from, to)
}

// await blocks until a condition holds, for five seconds at most: faults need not be exact.
func await(ctx context.Context, holds func() bool) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for !holds() && ctx.Err() == nil {
		wait(ctx, 10*ms)
	}
}

// takeOverPaused lets the leases of a hub run out while its calls hang, and pauses it before it notices. Its calls
// are not cancelled then, and must have ended by their deadlines before another hub may take the leases. When it
// goes on, it must not begin anything.
func takeOverPaused(ctx context.Context, w *world, r *replica) (undo, error) {
	began := time.Now()
	until := func(d time.Duration) { wait(ctx, time.Until(began.Add(d))) }
	end := r.proxy.begin(trouble{kind: APILeases, share: 1})
	defer end()
	until(movesAt)
	w.orderMoves()
	until(hangAt)
	hangs := []fakecsi.Hang{{Method: publish}, {Method: unpublish}}
	if err := w.setAll(fakecsi.Knobs{Hang: hangs}); err != nil {
		return nil, err
	}
	w.orderMoves() // also those pods that had an order already
	until(pauseAt)
	_, err := r.pause("is paused, its leases are not renewed")
	if err == nil {
		until(resumeAt)
	}
	// Resume, also after an error: nothing must stay as it is.
	resumed := r.resume()
	wait(ctx, pace)
	return nothing, errors.Join(err, resumed, w.setAll(fakecsi.Knobs{Release: hangs}))
}

// setAll sets knobs of all drivers.
func (w *world) setAll(k fakecsi.Knobs) (err error) {
	for _, d := range w.Drivers {
		err = errors.Join(err, d.Backend.Set(k))
	}
	return err
}

// orderMoves orders all pods to move at once.
func (w *world) orderMoves() {
	for _, p := range w.pods {
		p.order(Recreated)
	}
}

const (
	// inFlight and done are how many publishes are in flight when the next leader begins to see nothing, and how many
	// of them end until it leads.
	inFlight, done = 3, 5
	// seen is how long the next leader takes to see what was written.
	seen = 50 * ms
	// staleFor is how long the next leader sees nothing.
	staleFor = time.Second
)

// takeOverStale pauses a hub until its leases were taken, while the other one does not see the last changes of the
// VolumeAttachments. A leader that relied on its cache alone would repeat what was done.
func takeOverStale(ctx context.Context, w *world, r, other *replica) (undo, error) {
	// Calls take as long as moves do: in the middle of them most VolumeAttachments are in a state that soon is no longer true.
	if err := w.setAll(fakecsi.AttachLatency(fakecsi.Latency{Base: 200 * ms, Jitter: 300 * ms})); err != nil {
		return nil, err
	}
	w.orderMoves()
	await(ctx, func() bool { publishing, _ := w.history.busy(r.name); return publishing >= inFlight })
	wait(ctx, seen)
	_, before := w.history.busy(r.name)
	lag := other.proxy.Lags["volumeattachments"]
	lag.Begin()
	defer lag.End()
	w.history.add(other.name, "sees no change of VolumeAttachments")
	w.still.Store(true) // what the next leader still sees should stay wrong
	defer w.still.Store(false)
	await(ctx, func() bool { _, now := w.history.busy(r.name); return now >= before+done })
	if err := w.setAll(fakecsi.AttachLatency(w.load.latency)); err != nil {
		return nil, err
	}
	paused, err := r.pause("is paused")
	if !paused || err != nil {
		return nil, err
	}
	await(ctx, func() bool { return w.history.leads(r.name) == 0 })
	wait(ctx, staleFor)
	w.history.add(other.name, "sees changes of VolumeAttachments again")
	return func(context.Context) error { return r.resume() }, nil
}
