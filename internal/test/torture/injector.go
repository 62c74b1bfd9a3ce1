package torture

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// injector carries out the faults of stretches.
type injector struct {
	world    *world
	takeover sync.Mutex // held during a takeover

	mu     sync.Mutex // guards all below
	counts map[Kind]int
	codes  map[string]int // faults of kind DriverError by gRPC code
	done   int
}

func newInjector(w *world) *injector {
	return &injector{world: w, counts: map[Kind]int{}, codes: map[string]int{}}
}

// undo ends a fault and takes its effect back.
type undo func(context.Context) error

// nothing is the undo of a fault that leaves nothing to take back.
func nothing(context.Context) error { return nil }

// run carries out the faults of a stretch, each at its time. Soon after the last one has begun it ends
// all that still last. It blocks until every fault is over.
func (i *injector) run(ctx context.Context, s Stretch) error {
	healing := make(chan struct{})
	began := time.Now()
	var faults sync.WaitGroup
	for _, f := range s.Faults {
		wait(ctx, time.Until(began.Add(f.At)))
		if ctx.Err() != nil {
			break
		}
		faults.Go(func() {
			if err := i.carryOut(ctx, f, healing); err != nil {
				i.world.fail(fmt.Errorf("%s: %w", f, err))
			}
		})
	}
	wait(ctx, pace)
	close(healing)
	faults.Wait()
	return ctx.Err()
}

// carryOut begins one fault and blocks until it is over.
func (i *injector) carryOut(ctx context.Context, f Fault, healing <-chan struct{}) error {
	i.world.history.add(i.about(f), "FAULT %s", f)
	back, err := i.begin(ctx, f)
	if err != nil || back == nil {
		return err
	}
	i.count(f)
	if f.Length == 0 {
		return back(ctx)
	}
	timer := time.NewTimer(f.Length)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-healing:
	case <-ctx.Done():
	}
	i.world.history.add(i.about(f), "end of %s", f)
	return back(ctx)
}

func (i *injector) count(f Fault) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.counts[f.Kind]++
	i.done++
}

// carriedOut returns how many faults have begun.
func (i *injector) carriedOut() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.done
}

// scopes are those of all kinds.
var scopes = func() map[Kind]scope {
	m := map[Kind]scope{APIStop: onPlane, TakeoverPaused: onTakeover, TakeoverStale: onTakeover}
	for _, h := range schedules {
		m[h.kind] = h.scope
	}
	return m
}()

// about returns the volume, driver or hub that a fault hits, for the history; empty: everything.
func (i *injector) about(f Fault) string {
	w := i.world
	switch scopes[f.Kind] {
	case onPod:
		return i.pod(f).volume.name
	case onVolume:
		return i.volume(f).name
	case onServer, onBehaviour, onLatency, onReadiness, onAnswers, onSettings, onSecret:
		return w.storages[f.Target].Name
	case onProcess, onAPI, onSilence:
		return w.hubs[f.Target].name
	}
	return ""
}

// begin begins a fault. Neither an undo nor an error: the fault is not possible now.
func (i *injector) begin(ctx context.Context, f Fault) (undo, error) {
	switch scopes[f.Kind] {
	case onPod:
		return i.beginPod(ctx, f)
	case onServer, onBehaviour, onLatency, onReadiness, onAnswers:
		return i.beginStorage(ctx, f)
	case onProcess:
		return i.beginHub(ctx, f)
	case onTakeover:
		return i.takeOver(ctx, f)
	case onAPI, onSilence:
		return i.beginAPI(f), nil
	case onPlane:
		return i.stopPlane(ctx, f)
	case onSettings, onConfig:
		return i.beginConfig(f)
	}
	return i.beginObject(ctx, f)
}

// pod returns the pod that a fault hits. A pod can replace only a PersistentVolume that no other pod uses.
func (i *injector) pod(f Fault) *pod {
	var fit []*pod
	for _, p := range i.world.pods {
		if f.Kind != VolumeReplaced || !p.volume.inline && !p.volume.shared {
			fit = append(fit, p)
		}
	}
	return fit[f.Target%len(fit)]
}

// volume returns the volume that a fault hits. It has a PersistentVolume.
func (i *injector) volume(f Fault) *volume {
	fit := i.world.persistent()
	return fit[f.Target%len(fit)]
}

func (i *injector) beginPod(ctx context.Context, f Fault) (undo, error) {
	p := i.pod(f)
	if f.Kind != FinalizerTaken {
		if !p.order(f.Kind) {
			return nil, nil
		}
		return nothing, nil
	}
	done, err := p.takeFinalizer(ctx)
	if err != nil || !done {
		return nil, err
	}
	return nothing, nil
}

// sizes returns how many targets each scope has.
func (w *world) sizes() map[scope]int {
	n := len(w.storages)
	return map[scope]int{
		onPod: len(w.pods), onServer: n, onBehaviour: n, onLatency: n, onReadiness: n, onAnswers: n, onSettings: n, onSecret: n,
		onProcess: hubCount, onAPI: hubCount, onSilence: hubCount, onNode: nodeCount, onCSINode: nodeCount, onVolume: len(w.persistent()),
	}
}

// persistent returns the volumes that have a PersistentVolume.
func (w *world) persistent() []*volume {
	var found []*volume
	for _, v := range w.all {
		if !v.inline {
			found = append(found, v)
		}
	}
	return found
}
