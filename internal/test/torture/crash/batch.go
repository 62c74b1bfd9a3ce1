package crash

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

const (
	// settleTime is for what is on its way when the last process of a batch has reached its point: an answer that has been
	// forwarded, and requests that were sent side by side.
	settleTime = 300 * time.Millisecond
	// lagTime is how long watches lag after the other process has taken over.
	lagTime = 3 * time.Second
	// wishTimeout is how long a wish may take.
	wishTimeout = 45 * time.Second
)

// Lag says which watch of the process that takes over is late, and since when.
type Lag struct {
	Resource string // of Resources; empty: none
	Late     bool   // since the scenario was triggered and that has been seen; else since before
}

func (l Lag) String() string {
	switch {
	case l.Resource == "":
		return "no watch lags"
	case l.Late:
		return l.Resource + " lag from after the trigger"
	}
	return l.Resource + " lag from before the trigger"
}

// Batch is a number of cases that share two processes. The first process works until the point of every case is
// reached, and is killed once. The second, whose caches are filled then, takes over. The cases have drivers of their
// own, so they do not disturb each other. All have the same Ending, and all have a Point or none has one.
type Batch struct {
	Plane *testbed.ControlPlane
	Hub   string // binary
	Dir   string // existing, with a short path
	Name  string // unique in the control plane, without '-'
	Cases []Case
	Lag   Lag
}

// Result is what became of one case.
type Result struct {
	Case     Case
	Steps    []string       // of the process that is killed, without a Point
	Once     map[string]int // how often each call has succeeded
	Findings []string       // what does not hold
}

// Run runs the batch and returns the results in the order of the cases. An error says that a case could not be
// carried out; then there are no results.
func (b Batch) Run(ctx context.Context) (results []Result, err error) {
	r := &run{Batch: b, cluster: testbed.NewCluster(b.Plane.Clientset())}
	defer func() {
		for _, p := range r.processes {
			if p != nil {
				p.close()
			}
		}
		if r.seen != nil {
			r.seen.Close()
		}
	}()
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"start", r.start}, {"make objects", r.prepare}, {"trigger", r.trigger}, {"reach the points", r.work},
		{"take over", r.takeOver}, {"reach what is wished", r.fulfil}, {"detach everything", r.tearDown},
	} {
		if err := step.do(ctx); err != nil {
			return nil, fmt.Errorf("batch %s, %s: %s: %w", b.Name, b.Lag, step.what, err)
		}
	}
	for i, t := range r.trials {
		result := Result{Case: t.Case, Once: t.once(), Findings: append(r.findings[i], t.violations()...)}
		if t.Point == nil {
			result.Steps = r.steps[i]
		} else {
			result.Findings = append(result.Findings, t.needless()...)
		}
		results = append(results, result)
	}
	return results, nil
}

// run is a batch that runs.
type run struct {
	Batch
	cluster   *testbed.Cluster
	seen      *testbed.Watcher[*storagev1.VolumeAttachment]
	trials    []*trial
	processes [2]*process
	findings  map[int][]string // by trial
	steps     map[int][]string // by trial: those of the process that is killed, up to the wish
	touched   time.Time        // when touch last did
	holder    string           // identity of the process that is killed, in its leases
}

func (r *run) ending() Ending       { return r.Cases[0].Scenario.Ending }
func (r *run) crashes() bool        { return r.Cases[0].Point != nil }
func (r *run) victim() *process     { return r.processes[r.Cases[0].victim()] }
func (r *run) successor() *process  { return r.processes[1-r.Cases[0].victim()] }
func (r *run) namespace() string    { return "crash-" + r.Name }
func (r *run) first(t *trial) *tape { return t.tapes[0] }

// start starts both processes. The second may not compete for leases yet.
func (r *run) start(ctx context.Context) (err error) {
	r.findings = map[int][]string{}
	if r.seen, err = testbed.WatchVolumeAttachments(ctx, r.Plane.Clientset(), nil); err != nil {
		return err
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace()}}
	if _, err := r.Plane.Clientset().CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return err
	}
	for i, c := range r.Cases {
		t, err := newTrial(c, fmt.Sprintf("crash-%s-%d", r.Name, i), r.cluster, r.seen)
		if err != nil {
			return err
		}
		r.trials = append(r.trials, t)
	}
	for i := range r.processes {
		if r.processes[i], err = startProcess(ctx, r.Batch, i, r.namespace(), r.trials); err != nil {
			return err
		}
	}
	close(r.processes[0].proxy.compete)
	return nil
}

// prepare makes the objects, and waits until the process that takes over has them.
func (r *run) prepare(ctx context.Context) error {
	err := r.each(ctx, func(ctx context.Context, t *trial) error { return t.make(ctx) })
	if err != nil {
		return err
	}
	for _, resource := range Resources {
		if err := r.caughtUp(ctx, resource); err != nil {
			return err
		}
	}
	return r.readHolder(ctx)
}

// each does something for all trials, many at once.
func (r *run) each(ctx context.Context, do func(context.Context, *trial) error) error {
	return testbed.Each(ctx, 16, r.trials, func(ctx context.Context, t *trial) error {
		if err := do(ctx, t); err != nil {
			return fmt.Errorf("%s (%s): %w", t.Case, t.key, err)
		}
		return nil
	})
}

// await waits until something holds of each trial.
func (r *run) await(ctx context.Context, what string, holds func(*trial) bool) error {
	for _, t := range r.trials {
		if err := waitUntil(ctx, what, func() bool { return holds(t) }); err != nil {
			return fmt.Errorf("%s (%s): %w; the steps were %q", t.Case, t.key, err, t.tapes[t.victim()].recorded())
		}
	}
	return nil
}

// trigger begins all scenarios. What the first process does about them waits until all have begun.
func (r *run) trigger(ctx context.Context) error {
	for _, t := range r.trials {
		r.first(t).stop()
		if r.ending() != Killed {
			r.first(t).latch()
		}
	}
	begin := func(ctx context.Context, t *trial) error { return t.Scenario.trigger(ctx, t) }
	if r.ending() == TakenOver { // what lags there is the watch of the first process, which has its own work to do before
		if err := r.each(ctx, begin); err != nil {
			return err
		}
	} else if err := r.lagAround(ctx, begin); err != nil {
		return err
	}
	for _, t := range r.trials {
		r.first(t).release()
	}
	return nil
}

// work lets the victim work up to its point of each trial, and kills it. Without points it works until all is done.
func (r *run) work(ctx context.Context) error {
	if err := r.end(ctx); err != nil {
		return err
	}
	if !r.crashes() {
		return nil
	}
	for _, t := range r.trials {
		select {
		case <-t.tapes[t.victim()].reached:
		case <-r.successor().Done():
			return fmt.Errorf("the %s has ended by itself:\n%s", r.successor().name, r.successor().LastLines(20))
		case <-ctx.Done():
			return fmt.Errorf("%s (%s): the point is not reached: %w; the steps were %q", t.Case, t.key, context.Cause(ctx), t.tapes[t.victim()].recorded())
		}
	}
	time.Sleep(settleTime)
	if r.ending() == TakenOver {
		if err := r.readHolder(ctx); err != nil {
			return err
		}
	}
	r.victim().Kill()
	now, err := r.list(ctx)
	if err != nil {
		return err
	}
	for i, t := range r.trials {
		if err := t.untrue(now); err != nil {
			r.findings[i] = append(r.findings[i], "when it was killed: "+err.Error())
		}
	}
	return nil
}

// end ends the work of the first process, as the scenarios say.
func (r *run) end(ctx context.Context) error {
	if r.ending() == Killed {
		return nil
	}
	err := r.await(ctx, "both calls are in flight", func(t *trial) bool { return r.first(t).callsWaiting() >= 2 || r.first(t).isReached() })
	if err != nil {
		return err
	}
	if r.ending() == Drained {
		if err := r.processes[0].signalStop(); err != nil {
			return err
		}
		if err := waitUntil(ctx, "the process drains", func() bool { return r.processes[0].logged("Stopping, waiting for calls in flight") }); err != nil {
			return err
		}
	} else if err := r.processes[0].configure("paused"); err != nil {
		return err
	}
	for _, t := range r.trials {
		r.first(t).unlatch()
	}
	if r.ending() != TakenOver {
		return nil
	}
	if err := r.await(ctx, "the lease is released", func(t *trial) bool { return r.first(t).has(leaseReleased + " #1") }); err != nil {
		return err
	}
	if err := r.lagAround(ctx, func(ctx context.Context, t *trial) error { return t.Scenario.later(ctx, t) }); err != nil {
		return err
	}
	for _, t := range r.trials {
		t.tapes[1].stop()
		t.tapes[1].release()
	}
	close(r.processes[1].proxy.compete)
	return nil
}
