package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
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
	DriverHostile  Kind = "driver hostile"           // its answers are as large as the hub takes them, or larger
	HubKill        Kind = "hub kill"                 // SIGKILL, and a new start
	HubPause       Kind = "hub pause"
	HubDoubled     Kind = "hub doubled" // one more process for a while

	TakeoverPaused Kind = "takeover while paused"    // the leases run out, and the hub is paused with calls in flight
	TakeoverStale  Kind = "takeover with old caches" // the next leader does not see the last changes

	APIStop       Kind = "api stop" // for all clients
	APISlow       Kind = "api slow"
	APIConflict   Kind = "api conflict"
	APIThrottle   Kind = "api throttle"
	APIError      Kind = "api error"
	APILeases     Kind = "api leases"      // requests for leases fail, everything else passes
	APIAnswerLost Kind = "api answer lost" // the write takes effect, its answer is lost
	Crashes       Kind = "crash"           // the process is killed at this request
)

// scope is the part of a target that a fault hits. Two faults of one scope and target never overlap,
// unless the scope is shared.
type scope string

const (
	onPod       scope = "pod"
	onServer    scope = "server"    // of a driver: whether it runs
	onBehaviour scope = "behaviour" // of a driver; shared
	onLatency   scope = "latency"   // of a driver
	onReadiness scope = "readiness" // of a driver
	onAnswers   scope = "answers"   // of a driver
	onSettings  scope = "settings"  // of a driver in drivers.yaml
	onSecret    scope = "secret"    // of a driver
	onProcess   scope = "process"   // of a hub
	onAPI       scope = "api"       // of a hub; shared
	onSilence   scope = "silence"   // of a hub's way to the API server
	onNode      scope = "node"
	onCSINode   scope = "csinode"
	onVolume    scope = "volume"
	onConfig    scope = "config"   // the file
	onTakeover  scope = "takeover" // of the hub that leads most drivers
	onPlane     scope = "plane"
)

// shared reports whether faults of one target may overlap.
func (s scope) shared() bool { return s == onBehaviour || s == onAPI }

// sizes returns how many targets each scope has.
func (w *world) sizes() map[scope]int {
	n := len(w.Drivers)
	return map[scope]int{
		onPod: len(w.pods), onServer: n, onBehaviour: n, onLatency: n, onReadiness: n, onAnswers: n, onSettings: n, onSecret: n,
		onProcess: hubCount, onAPI: hubCount, onSilence: hubCount, onNode: nodeCount, onCSINode: nodeCount, onVolume: len(w.persistent()),
	}
}

// when restricts a kind to some stretches.
type when int

const (
	always     when = iota
	hasty           // stretches with one hub, which does not end
	hubsMayEnd      // stretches in which no VolumeAttachment goes without its finalizer
)

// undo ends a fault and takes its effect back.
type undo func(context.Context) error

// nothing is the undo of a fault that leaves nothing to take back.
func nothing(context.Context) error { return nil }

// kind says how often a kind of fault comes, for how long, and how it begins. Neither an undo nor an error: it is not possible
// now.
type kind struct {
	Kind
	weight      int // relative frequency; 0: plans add it in a way of its own
	scope       scope
	least, most time.Duration // length; 0: the fault is over at once
	when        when
	begin       func(context.Context, *world, Fault) (undo, error)
}

const ms = time.Millisecond

// kinds are all. A lease lasts 3 s: faults of hubs last less and more.
var kinds = []kind{
	{Recreated, 10, onPod, 0, 0, always, order},
	{DeletedEarly, 8, onPod, 0, 0, hasty, order},
	{VolumeReplaced, 4, onPod, 0, 0, always, order},
	{"attachment finalizer taken", 4, onPod, 0, 0, hasty, func(ctx context.Context, w *world, f Fault) (undo, error) {
		done, err := w.podOf(f).takeFinalizer(ctx)
		return nothingIf(done), err
	}},

	{"driver crash", 6, onServer, 50 * ms, 3000 * ms, always, func(_ context.Context, w *world, f Fault) (undo, error) {
		server := w.Drivers[f.Target].Server
		server.Crash()
		return func(context.Context) error { return server.Start() }, nil
	}},
	{"driver other capabilities", 2, onServer, 1000 * ms, 4000 * ms, always, otherCapabilities},
	{"driver hang", 5, onBehaviour, 200 * ms, 4000 * ms, always, func(_ context.Context, w *world, f Fault) (undo, error) {
		return w.hang(f, fakecsi.Hang{Method: one(f.random(), calledMethods)})
	}},
	// The storage changes, the caller sees DeadlineExceeded.
	{"driver late answer", 6, onBehaviour, 1500 * ms, 4000 * ms, always, func(_ context.Context, w *world, f Fault) (undo, error) {
		return w.hang(f, fakecsi.Hang{Method: one(f.random(), attachMethods), AfterEffect: true})
	}},
	{"driver error", 16, onBehaviour, 0, 0, always, func(_ context.Context, w *world, f Fault) (undo, error) {
		random, methods := f.random(), attachMethods
		if random.IntN(4) == 0 {
			methods = calledMethods
		}
		return nothing, w.Drivers[f.Target].Backend.Set(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: one(random, methods),
			Code: codes.Code(1 + random.IntN(int(codes.Unauthenticated))), Count: 1 + random.IntN(6), AfterEffect: random.IntN(2) == 0}}})
	}},
	{"driver slow", 4, onLatency, 1000 * ms, 4000 * ms, always, func(_ context.Context, w *world, f Fault) (undo, error) {
		return w.knobs(f, fakecsi.AttachLatency(fakecsi.Latency{Base: 300 * ms, Jitter: 2000 * ms}), fakecsi.AttachLatency(w.load.latency))
	}},
	{"driver not ready", 2, onReadiness, 500 * ms, 3000 * ms, always, func(_ context.Context, w *world, f Fault) (undo, error) {
		return w.knobs(f, fakecsi.Knobs{NotReady: new(true)}, fakecsi.Knobs{NotReady: new(false)})
	}},
	{DriverHostile, 3, onAnswers, 1000 * ms, 4000 * ms, always, func(_ context.Context, w *world, f Fault) (undo, error) {
		return w.knobs(f, hostile(f.random()), fakecsi.Knobs{PublishContext: usualContext, ClearFaults: true})
	}},
	{"storage lost attachment", 6, onBehaviour, 0, 0, always, lose},
	{"storage gained attachment", 3, onBehaviour, 500 * ms, 3000 * ms, always, gain},

	{HubKill, 12, onProcess, 50 * ms, 4000 * ms, hubsMayEnd, func(_ context.Context, w *world, f Fault) (undo, error) {
		return undoIf(w.hubs[f.Target].kill(), w.hubs[f.Target].start), nil
	}},
	{"hub stop", 10, onProcess, 50 * ms, 3000 * ms, hubsMayEnd, func(ctx context.Context, w *world, f Fault) (undo, error) {
		return undoIf(w.hubs[f.Target].stop(ctx), w.hubs[f.Target].start), nil
	}},
	{HubDoubled, 10, onProcess, 2000 * ms, 5000 * ms, hubsMayEnd, func(ctx context.Context, w *world, f Fault) (undo, error) {
		r := w.hubs[f.Target]
		if r.running() {
			return nil, nil
		}
		return func(ctx context.Context) error { r.stop(ctx); return nil }, r.start(ctx)
	}},
	{HubPause, 14, onProcess, 300 * ms, 6000 * ms, always, pauseHub},

	{APISlow, 4, onAPI, 500 * ms, 3000 * ms, always, troubled},
	{APIConflict, 5, onAPI, 300 * ms, 2000 * ms, always, troubled},
	{APIThrottle, 3, onAPI, 200 * ms, 1000 * ms, always, troubled},
	{APIError, 5, onAPI, 300 * ms, 2000 * ms, always, troubled},
	{APILeases, 3, onAPI, 500 * ms, 4000 * ms, always, troubled},
	{APIAnswerLost, 4, onAPI, 300 * ms, 2000 * ms, always, troubled},
	{"api watches drop", 2, onAPI, 0, 0, always, func(_ context.Context, w *world, f Fault) (undo, error) {
		return nothingIf(w.hubs[f.Target].proxy.dropWatches()), nil
	}},
	// Nothing passes, in either direction.
	{"api silent", 4, onSilence, 500 * ms, 5000 * ms, always, func(_ context.Context, w *world, f Fault) (undo, error) {
		w.hubs[f.Target].proxy.Shut()
		return func(context.Context) error { w.hubs[f.Target].proxy.Open(); return nil }, nil
	}},
	{APIStop, 0, onPlane, 0, 0, always, stopPlane},
	{TakeoverPaused, 0, onTakeover, 0, 0, always, takeOver},
	{TakeoverStale, 0, onTakeover, 0, 0, always, takeOver},

	{"node gone", 3, onNode, 500 * ms, 3000 * ms, always, func(ctx context.Context, w *world, f Fault) (undo, error) {
		return w.removed(ctx, testbed.Node{Name: w.Nodes[f.Target]})
	}},
	{"csinode gone", 4, onCSINode, 300 * ms, 3000 * ms, always, func(ctx context.Context, w *world, f Fault) (undo, error) {
		return w.removed(ctx, w.CSINode(w.Nodes[f.Target]))
	}},
	{"secret gone", 3, onSecret, 300 * ms, 3000 * ms, always, func(ctx context.Context, w *world, f Fault) (undo, error) {
		return w.removed(ctx, secret(f.Target))
	}},
	// Its finalizers are removed.
	{"volume vanished", 4, onVolume, 300 * ms, 3000 * ms, always, func(ctx context.Context, w *world, f Fault) (undo, error) {
		v := w.persistent()[f.Target]
		return v.create, v.vanish(ctx)
	}},

	{"config rewritten", 4, onSettings, 0, 0, always, func(_ context.Context, w *world, f Fault) (undo, error) {
		random := f.random()
		return nothing, w.config.set(func(s *settings) {
			s.workers, s.timeout = 1+random.IntN(20), fmt.Sprintf("%dms", 700+random.IntN(1300))
		}, f.Target)
	}},
	{"config paused", 3, onSettings, 500 * ms, 3000 * ms, always, func(_ context.Context, w *world, f Fault) (undo, error) {
		mode := func(mode string) error { return w.config.set(func(s *settings) { s.mode = mode }, f.Target) }
		return func(context.Context) error { return mode("active") }, mode(one(f.random(), []string{"paused", "observe"}))
	}},
	{"config broken", 2, onConfig, 300 * ms, 2000 * ms, always, func(_ context.Context, w *world, f Fault) (undo, error) {
		return w.replaceConfig(one(f.random(), []string{"", testbed.ConfigHead + "drivers:\n  - {name: chaos-d0, endpoint: \"unix:///tm",
			testbed.ConfigHead + "drivers: []\nsurprise: true\n", "\x00\x01\x02"}), true)
	}},
	{"config emptied", 2, onConfig, 300 * ms, 2000 * ms, always, func(_ context.Context, w *world, f Fault) (undo, error) {
		return w.replaceConfig(testbed.ConfigHead+"drivers: []\n", false)
	}},
}

func undoIf(done bool, back undo) undo {
	if !done {
		return nil
	}
	return back
}

func nothingIf(done bool) undo { return undoIf(done, nothing) }

// one draws one of some things.
func one[T any](random *rand.Rand, of []T) T { return of[random.IntN(len(of))] }

var (
	attachMethods = []fakecsi.Method{publish, unpublish}
	calledMethods = append(attachMethods[:2:2], fakecsi.ListVolumes, fakecsi.Probe, fakecsi.ControllerGetCapabilities)
	// usualContext is the publish context of a driver that was hostile.
	usualContext = map[string]string{"devicePath": "/dev/disk/by-id/any"}
)

// podOf returns the pod that a fault hits. A pod can replace only a PersistentVolume that no other pod uses.
func (w *world) podOf(f Fault) *pod {
	fit := w.pods
	if f.Kind == VolumeReplaced {
		fit = slices.DeleteFunc(slices.Clone(fit), func(p *pod) bool { return p.volume.inline || p.volume.shared })
	}
	return fit[f.Target%len(fit)]
}

func order(_ context.Context, w *world, f Fault) (undo, error) {
	return nothingIf(w.podOf(f).order(f.Kind)), nil
}

// knobs sets knobs of a driver, and others at the end.
func (w *world) knobs(f Fault, now, then fakecsi.Knobs) (undo, error) {
	set := w.Drivers[f.Target].Backend.Set
	return func(context.Context) error { return set(then) }, set(now)
}

func (w *world) hang(f Fault, h ...fakecsi.Hang) (undo, error) {
	return w.knobs(f, fakecsi.Knobs{Hang: h}, fakecsi.Knobs{Release: h})
}

// otherCapabilities lets a driver come back with others for a while. Those that can attach keep
// SINGLE_NODE_MULTI_WRITER: see the package comment.
func otherCapabilities(ctx context.Context, w *world, f Fault) (undo, error) {
	other := one(f.random(), [][]fakecsi.Capability{
		{}, // not even a controller
		{fakecsi.ControllerService, fakecsi.ListVolumesRPC, fakecsi.ListVolumesPublishedNodes},
		{fakecsi.ControllerService, fakecsi.PublishUnpublishVolume, fakecsi.SingleNodeMultiWriter},
		{fakecsi.ControllerService, fakecsi.PublishUnpublishVolume, fakecsi.SingleNodeMultiWriter, fakecsi.ListVolumesRPC},
	})
	d := w.Drivers[f.Target]
	restart := func(ctx context.Context, c []fakecsi.Capability) error {
		d.Server.Crash()
		// A call that began with the old capabilities must not meet the new ones.
		if err := d.Backend.Wait(ctx, func(b fakecsi.Books) bool { return b.InFlight.Now == 0 }); err != nil {
			return fmt.Errorf("restart driver: %w", err)
		}
		return errors.Join(d.Backend.Set(fakecsi.Knobs{Capabilities: c}), d.Server.Start())
	}
	w.history.announces(d.Name, slices.Contains(other, fakecsi.PublishUnpublishVolume))
	return func(ctx context.Context) error {
		defer w.history.announces(d.Name, true)
		return restart(ctx, fakecsi.DefaultCapabilities())
	}, restart(ctx, other)
}

// hostile returns knobs for answers that are as large as the hub takes them, or larger.
func hostile(random *rand.Rand) fakecsi.Knobs {
	contexts := []int{250 << 10, 1<<20 - 1<<10, 15 << 20} // taken, read and refused, not read
	text := strings.Repeat("x", one(random, []int{120 << 10, 5 << 20}))
	k := fakecsi.Knobs{PublishContext: map[string]string{"blob": strings.Repeat("x", one(random, contexts))}}
	for _, method := range []fakecsi.Method{unpublish, fakecsi.ListVolumes, fakecsi.Probe} {
		k.Fail = append(k.Fail, fakecsi.Fault{Method: method, Code: codes.Internal, Message: text})
	}
	return k
}

// attached returns the attachments of a driver that match, sorted.
func (w *world) attached(driver int, is func(fakecsi.Attachment) bool) (found []fakecsi.VolumeNode) {
	for volume, nodes := range w.Drivers[driver].Backend.Books().Attached {
		for node, a := range nodes {
			if is(a) {
				found = append(found, fakecsi.VolumeNode{Volume: volume, Node: node})
			}
		}
	}
	slices.SortFunc(found, func(x, y fakecsi.VolumeNode) int { return strings.Compare(x.Volume+x.Node, y.Volume+y.Node) })
	return found
}

// lose lets the storage lose an attachment.
func lose(_ context.Context, w *world, f Fault) (undo, error) {
	there := w.attached(f.Target, func(fakecsi.Attachment) bool { return true })
	if len(there) == 0 {
		return nil, nil
	}
	return nothing, w.Drivers[f.Target].Backend.Set(fakecsi.Knobs{LoseAttachments: []fakecsi.VolumeNode{one(f.random(), there)}})
}

// gain lets the storage attach, without a call, a volume that is attached nowhere.
func gain(_ context.Context, w *world, f Fault) (undo, error) {
	random, books := f.random(), w.Drivers[f.Target].Backend.Books()
	var free []string
	for _, v := range w.all {
		if v.driver == f.Target && len(books.Attached[v.name]) == 0 {
			free = append(free, v.name)
		}
	}
	if len(free) == 0 {
		return nil, nil
	}
	gained := fakecsi.VolumeNode{Volume: one(random, free), Node: testbed.NodeID(one(random, w.Nodes))}
	return func(context.Context) error { return w.loseForeign(f.Target, gained) },
		w.Drivers[f.Target].Backend.Set(fakecsi.Knobs{GainAttachments: []fakecsi.VolumeNode{gained}})
}

func isForeign(a fakecsi.Attachment) bool { return a.Foreign }

// loseForeign undoes what a storage has attached on its own, unless a call has asked for it since.
func (w *world) loseForeign(driver int, gained fakecsi.VolumeNode) error {
	if !slices.Contains(w.attached(driver, isForeign), gained) {
		return nil
	}
	return w.Drivers[driver].Backend.Set(fakecsi.Knobs{LoseAttachments: []fakecsi.VolumeNode{gained}})
}

// loseAllForeign undoes everything that storages have attached on their own.
func (w *world) loseAllForeign() error {
	for i, d := range w.Drivers {
		if lost := w.attached(i, isForeign); len(lost) > 0 {
			if err := d.Backend.Set(fakecsi.Knobs{LoseAttachments: lost}); err != nil {
				return err
			}
		}
	}
	return nil
}

// rush bounds how long pods have been moving when a hub is paused in the middle of their moves.
const rush = 400 * ms

// pauseHub pauses a hub. In half of the cases it orders all pods to move first: the hub then has calls in
// flight and more that wait. When the hub goes on without its leases, it must not make them.
func pauseHub(ctx context.Context, w *world, f Fault) (undo, error) {
	r := w.hubs[f.Target]
	if random := f.random(); random.IntN(2) == 0 && r.running() {
		w.orderMoves()
		wait(ctx, time.Duration(random.Int64N(int64(rush))))
	}
	paused, err := r.pause("is paused")
	return undoIf(paused, func(context.Context) error { return r.resume() }), err
}

// troubled begins a trouble in the proxy of one hub.
func troubled(_ context.Context, w *world, f Fault) (undo, error) {
	random := f.random()
	end := w.hubs[f.Target].proxy.begin(trouble{kind: f.Kind, share: 0.1 + 0.6*random.Float64(), delay: time.Duration(random.Int64N(int64(time.Second)))})
	return func(context.Context) error { end(); return nil }, nil
}

// planeTime is how long the API server may take to start.
const planeTime = 2 * time.Minute

// stopPlane stops the API server, at random gracefully or with SIGKILL.
func stopPlane(ctx context.Context, w *world, f Fault) (undo, error) {
	if f.random().IntN(2) == 0 {
		w.Plane.Kill()
	} else if err := w.Plane.StopAPIServer(ctx); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeoutCause(ctx, planeTime, errors.New("it does not start"))
		defer cancel()
		if err := w.Plane.StartAgain(ctx); err != nil {
			return fmt.Errorf("start the API server again: %w", err)
		}
		return nil
	}, nil
}

// removed deletes an object that has no finalizer, and makes it again at the end.
func (w *world) removed(ctx context.Context, o testbed.Object) (undo, error) {
	return func(ctx context.Context) error { return w.Cluster.Ensure(ctx, o) },
		testbed.Insist(ctx, "delete "+o.String(), func(ctx context.Context) error { return w.Cluster.Delete(ctx, o) })
}

func (w *world) replaceConfig(content string, broken bool) (undo, error) {
	return func(context.Context) error { return w.config.replace(nil, false) }, w.config.replace(&content, broken)
}
