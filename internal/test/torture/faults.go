package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// Kind is a sort of fault.
type Kind string

// Kinds that more than their row of the table knows.
const (
	Recreated      Kind = "attachment recreated"     // deleted, and made again at once under the same name
	DeletedEarly   Kind = "attachment deleted early" // made, and deleted before an attacher has answered
	VolumeReplaced Kind = "volume replaced"          // deleted while its finalizers hold it, and made again
	StorageLost    Kind = "storage lost attachment"
	HubKill        Kind = "hub kill" // SIGKILL, and a new start
	HubPause       Kind = "hub pause"
	HubPausedLate  Kind = "hub pause at the end of its leases"

	APIStop       Kind = "api stop" // for all clients
	APISilent     Kind = "api silent"
	APIError      Kind = "api error"
	APILeases     Kind = "api leases"      // requests for leases fail, everything else passes
	APIAnswerLost Kind = "api answer lost" // the write takes effect, its answer is lost
	Crashes       Kind = "crash"           // the process is killed at this request
)

// target is what a fault hits. Faults of one kind and target never overlap, nor do those of one process.
type target int

const (
	aPod target = iota
	aDriver
	aProcess // of a hub
	anAPI    // a hub's way to the API server
	aNode
	theCluster
	targets // how many there are
)

// sizes returns how many there are of each target.
func (w *world) sizes() [targets]int {
	return [targets]int{len(w.pods), len(w.Drivers), hubCount, hubCount, nodeCount, 1}
}

// undo ends a fault and takes its effect back.
type undo func(context.Context) error

// nothing is the undo of a fault that leaves nothing to take back.
func nothing(context.Context) error { return nil }

// kind says how often a kind of fault comes, for how long, and how it begins. Neither an undo nor an error: it is not possible
// now.
type kind struct {
	Kind
	weight      int // relative frequency; 0: each stretch begins with it
	target      target
	least, most time.Duration // length; 0: the fault is over at once
	hubs        int           // of the stretches in which it may come; 0: any
	begin       func(context.Context, *world, Fault) (undo, error)
}

const ms = time.Millisecond

// kinds are all. A lease lasts 3 s: faults of hubs last less and more.
var kinds = []kind{
	{Recreated, 10, aPod, 0, 0, 0, order},
	{DeletedEarly, 8, aPod, 0, 0, 1, order},
	{VolumeReplaced, 4, aPod, 0, 0, 0, order},
	{"attachment finalizer taken", 4, aPod, 0, 0, 1, func(ctx context.Context, w *world, f Fault) (undo, error) {
		done, err := w.pods[f.Target].takeFinalizer(ctx)
		return undoIf(done, nothing), err
	}},

	{"driver crash", 6, aDriver, 50 * ms, 3000 * ms, 0, func(_ context.Context, w *world, f Fault) (undo, error) {
		server := w.Drivers[f.Target].Server
		if _, down := w.crashed.LoadOrStore(f.Target, true); down { // on a busy machine the crash before it is not over
			return nil, nil
		}
		server.Crash()
		return func(context.Context) error { defer w.crashed.Delete(f.Target); return server.Start() }, nil
	}},
	// The storage may change, and the caller sees DeadlineExceeded.
	{"driver hang", 11, aDriver, 200 * ms, 4000 * ms, 0, func(_ context.Context, w *world, f Fault) (undo, error) {
		random := f.random()
		return w.hang(w.Drivers[f.Target:f.Target+1], fakecsi.Hang{Method: one(random, calledMethods), AfterEffect: random.IntN(2) == 0})
	}},
	{"driver error", 16, aDriver, 0, 0, 0, func(_ context.Context, w *world, f Fault) (undo, error) {
		random, methods := f.random(), attachMethods
		if random.IntN(4) == 0 {
			methods = calledMethods
		}
		return nothing, w.Drivers[f.Target].Backend.Set(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: one(random, methods),
			Code: codes.Code(1 + random.IntN(int(codes.Unauthenticated))), Count: 1 + random.IntN(6), AfterEffect: random.IntN(2) == 0}}})
	}},
	{StorageLost, 6, aDriver, 0, 0, 0, lose},

	{HubKill, 12, aProcess, 50 * ms, 4000 * ms, 2, func(_ context.Context, w *world, f Fault) (undo, error) {
		return undoIf(w.hubs[f.Target].kill(), w.hubs[f.Target].start), nil
	}},
	{"hub stop", 10, aProcess, 50 * ms, 3000 * ms, 2, func(ctx context.Context, w *world, f Fault) (undo, error) {
		return undoIf(w.hubs[f.Target].stop(ctx), w.hubs[f.Target].start), nil
	}},
	{HubPause, 14, aProcess, 300 * ms, 6000 * ms, 0, pauseHub},
	{HubPausedLate, 0, aProcess, resumeAt, resumeAt, 0, pauseLate},

	{APIStop, 1, theCluster, 100 * ms, 5000 * ms, 0, stopPlane},
	{APISilent, 4, anAPI, 500 * ms, 5000 * ms, 0, troubled},
	{APIError, 12, anAPI, 300 * ms, 2000 * ms, 0, troubled},
	{APILeases, 3, anAPI, 500 * ms, 4000 * ms, 0, troubled},
	{APIAnswerLost, 4, anAPI, 300 * ms, 2000 * ms, 0, troubled},

	{"csinode gone", 4, aNode, 300 * ms, 3000 * ms, 0, func(ctx context.Context, w *world, f Fault) (undo, error) {
		return w.removed(ctx, w.CSINode(w.Nodes[f.Target]))
	}},
	{"secret gone", 3, aDriver, 300 * ms, 3000 * ms, 0, func(ctx context.Context, w *world, f Fault) (undo, error) {
		return w.removed(ctx, secret(f.Target))
	}},
	{"config rewritten", 4, aDriver, 0, 0, 0, func(_ context.Context, w *world, f Fault) (undo, error) {
		random := f.random()
		others := fmt.Sprintf("workers: %d, timeout: %dms", 1+random.IntN(20), 700+random.IntN(1300))
		return nothing, w.config.change(func(c *driversFile) { c.settings[f.Target].others = others })
	}},
	{"config paused", 3, aDriver, 500 * ms, 3000 * ms, 0, func(_ context.Context, w *world, f Fault) (undo, error) {
		mode := func(mode string) error {
			return w.config.change(func(c *driversFile) { c.settings[f.Target].mode = mode })
		}
		return func(context.Context) error { return mode("active") }, mode(one(f.random(), []string{"paused", "observe"}))
	}},
	{"config emptied", 3, theCluster, 300 * ms, 2000 * ms, 0, func(_ context.Context, w *world, f Fault) (undo, error) {
		instead := func(content string) error { return w.config.change(func(c *driversFile) { c.instead = content }) }
		return func(context.Context) error { return instead("") }, instead(testbed.ConfigHead + "drivers: []\n")
	}},
}

func undoIf(done bool, back undo) undo {
	if !done {
		return nil
	}
	return back
}

// one draws one of some things.
func one[T any](random *rand.Rand, of []T) T { return of[random.IntN(len(of))] }

var (
	attachMethods = []fakecsi.Method{publish, unpublish}
	calledMethods = append(attachMethods[:2:2], publish, unpublish, fakecsi.ListVolumes, fakecsi.Probe)
)

// order orders a pod to move. It can replace only a PersistentVolume that no other pod uses.
func order(_ context.Context, w *world, f Fault) (undo, error) {
	p := w.pods[f.Target]
	if f.Kind == VolumeReplaced && (p.volume.inline || p.volume.shared) {
		return nil, nil
	}
	return undoIf(p.order(f.Kind), nothing), nil
}

// hang lets calls of some drivers hang.
func (w *world) hang(drivers []*testbed.Driver, hangs ...fakecsi.Hang) (undo, error) {
	set := func(k fakecsi.Knobs) (err error) {
		for _, d := range drivers {
			err = errors.Join(err, d.Backend.Set(k))
		}
		return err
	}
	return func(context.Context) error { return set(fakecsi.Knobs{Release: hangs}) }, set(fakecsi.Knobs{Hang: hangs})
}

// lose lets the storage lose an attachment.
func lose(_ context.Context, w *world, f Fault) (undo, error) {
	there := w.Drivers[f.Target].Backend.Books().Places()
	if len(there) == 0 {
		return nil, nil
	}
	lost := one(f.random(), there)
	return nothing, w.Drivers[f.Target].Backend.Set(fakecsi.Knobs{LoseAttachments: []fakecsi.VolumeNode{{Volume: lost.Volume, Node: lost.Node}}})
}

// rush bounds how long pods have been moving when a hub is paused in the middle of their moves.
const rush = 400 * ms

// pauseHub pauses a hub. In half of the cases it orders all pods to move first: the hub then has calls in
// flight and more that wait. When the hub goes on without its leases, it must not make them.
func pauseHub(ctx context.Context, w *world, f Fault) (undo, error) {
	r := w.hubs[f.Target]
	if random := f.random(); random.IntN(2) == 0 && r.current() != nil {
		w.orderMoves()
		wait(ctx, time.Duration(random.Int64N(int64(rush))))
	}
	paused, err := r.signal(true)
	return undoIf(paused, func(context.Context) error { _, err := r.signal(false); return err }), err
}

// Moments of pauseLate, since the leases cannot be renewed any more. A lease is lost 2.5 s after its last
// renewal, and may be taken 3 s after it. A call of 2 s that begins after the first second must not be made.
const (
	movesAt  = 1300 * ms
	hangAt   = 1400 * ms
	pauseAt  = 1900 * ms
	resumeAt = 4200 * ms
)

// pauseLate lets the leases of a hub run out while its calls hang, and pauses it before it notices. Its calls
// are not cancelled then, and must have ended by their deadlines before another hub may take the leases. When it
// goes on, it must not begin anything.
func pauseLate(ctx context.Context, w *world, f Fault) (undo, error) {
	r, began := w.hubs[f.Target], time.Now()
	if r.current() == nil {
		return nil, nil
	}
	until := func(d time.Duration) { wait(ctx, time.Until(began.Add(d))) }
	end := r.proxy.begin(trouble{kind: APILeases, share: 1})
	until(movesAt)
	w.orderMoves()
	until(hangAt)
	release, err := w.hang(w.Drivers, fakecsi.Hang{Method: publish}, fakecsi.Hang{Method: unpublish})
	w.orderMoves() // also those pods that had an order already
	until(pauseAt)
	_, paused := r.signal(true)
	return func(ctx context.Context) error {
		_, err := r.signal(false)
		wait(ctx, pace)
		end()
		return errors.Join(err, release(ctx))
	}, errors.Join(err, paused)
}

// orderMoves orders all pods to move at once.
func (w *world) orderMoves() {
	for _, p := range w.pods {
		p.order(Recreated)
	}
}

// troubled begins a trouble in the proxy of one hub.
func troubled(_ context.Context, w *world, f Fault) (undo, error) {
	t := trouble{kind: f.Kind, share: 0.1 + 0.6*f.random().Float64()}
	if f.Kind == APISilent {
		t.share = 1
	}
	end := w.hubs[f.Target].proxy.begin(t)
	return func(context.Context) error { end(); return nil }, nil
}

// stopPlane stops the API server, at random gracefully or with SIGKILL, unless it is stopped.
func stopPlane(ctx context.Context, w *world, f Fault) (_ undo, err error) {
	if !w.stopped.TryLock() {
		return nil, nil
	}
	if f.random().IntN(2) == 0 {
		w.Plane.Kill()
	} else {
		err = w.Plane.StopAPIServer(ctx)
	}
	return func(ctx context.Context) error { defer w.stopped.Unlock(); return w.Plane.StartAgain(ctx) }, err
}

// removed deletes an object that has no finalizer, and makes it again at the end.
func (w *world) removed(ctx context.Context, o testbed.Object) (undo, error) {
	return func(ctx context.Context) error { return w.Cluster.Ensure(ctx, o) },
		testbed.Insist(ctx, "delete "+o.String(), func(ctx context.Context) error { return w.Cluster.Delete(ctx, o) })
}
