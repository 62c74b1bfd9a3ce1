package torture

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// Crash is a scenario, with the point where the process is killed in it: at the first request with the name of the step.
// "After its answer" is the same world as before the next step.
type Crash struct {
	scenario
	step string
	lost bool // the request took effect, and its answer is lost; else it was sent and has no effect
}

func (c Crash) String() string {
	return fmt.Sprintf("%s, killed %s %q", c.name, map[bool]string{false: "before", true: "without the answer of"}[c.lost], c.step)
}

// IsDangerous reports whether the process is killed at a call, whose need or success is recorded nowhere but in the
// objects that were written before it.
func (c Crash) IsDangerous() bool { return strings.HasPrefix(c.step, "Controller") }

// Lag says which watch of the process that takes over is late, and since when.
type Lag struct {
	Resource string // empty: none
	Late     bool   // since the scenario was triggered and that has been seen; else since before
}

// Lags are those that every crash meets.
var Lags = []Lag{{}, {"volumeattachments", false}, {"volumeattachments", true}, {"persistentvolumes", false}, {"persistentvolumes", true}}

const (
	// reachTime is how long processes may take to their points. A point that is not reached then has its crash where all is done.
	// Calls and writes hang until then: it is well below the drivers' timeout and a third of the lease.
	reachTime = time.Minute
	// settleTime is for requests that were sent side by side with the last one that reached its point.
	settleTime = 300 * ms
	// lagTime is how long watches lag after the other process has taken over.
	lagTime = 3 * time.Second
)

// Outcome is what became of crashes.
type Outcome struct {
	Findings []string
	Missed   []string // the crashes whose point was not reached
	History  []string // the end of the history of what the first finding is about
}

// Points returns a crash for each point of each scenario.
func Points() (all []Crash) {
	for _, s := range scenarios {
		for _, step := range s.steps {
			all = append(all, Crash{s, step, false}, Crash{s, step, true})
		}
	}
	return all
}

// RunCrashes lets one process work for all drivers, up to the point of every crash, kills it once, and lets another one, whose
// caches are filled then, take over. Each crash has a driver of its own.
func RunCrashes(ctx context.Context, o Options, crashes []Crash, lag Lag) (*Outcome, error) {
	o.Drivers = len(crashes)
	// The leases of a dead process are made to expire, so they need not be short: busy machines keep them.
	l := load{
		sorts: []volume{{}, {}}, history: newHistory(), verbosity: 2, defaults: "{drift: {interval: 0}, retry: {initial: 200ms, max: 2s}}",
		settings: func(driver int) settings {
			return settings{mode: "active", others: "timeout: 180s, " + crashes[driver].settings}
		},
		hubFlags: []string{"--leader-election-lease-duration=360s", "--leader-election-renew-deadline=300s", "--leader-election-retry-period=1s"},
	}
	outcome := &Outcome{}
	err := within(ctx, o, l, func(ctx context.Context, w *world) error {
		r := &crashing{world: w, lag: lag, outcome: outcome}
		for i, c := range crashes {
			r.trials = append(r.trials, &trial{Crash: c, crashing: r, index: i, pods: w.pods[2*i : 2*i+2], reached: make(chan struct{}, 1)})
		}
		err := r.run(ctx)
		found, _ := w.found()
		for _, f := range found {
			outcome.Findings = append(outcome.Findings, fmt.Sprintf("%s: %s: %s", r.trialOf(f.About), f.About, f.Text))
		}
		if len(found) > 0 {
			outcome.History = w.story(found[0])
		}
		return ran(err)
	})
	return outcome, err
}

// crashing is a run of crashes.
type crashing struct {
	*world
	lag     Lag
	trials  []*trial
	outcome *Outcome

	triggered moment
}

// trial is a crash with a driver and pods of its own.
type trial struct {
	Crash
	*crashing
	index   int
	pods    []*pod        // one of each volume
	reached chan struct{} // has an element from the point on
}

func (t *trial) backend() *fakecsi.Backend { return t.Drivers[t.index].Backend }

// own returns a name without what differs between the drivers.
func (t *trial) own(name string) string {
	return strings.ReplaceAll(name, fmt.Sprintf("d%d-", t.index), "")
}

// trialOf returns the trial of a volume or driver; nil: it is about all.
func (r *crashing) trialOf(about string) *trial {
	for _, t := range r.trials {
		if cmp.Or(driverOf(about), about) == driverName(t.index) {
			return t
		}
	}
	return nil
}

// each does something for all trials, many at once.
func (r *crashing) each(ctx context.Context, do func(context.Context, *trial) error) error {
	return testbed.Each(ctx, 32, r.trials, func(ctx context.Context, t *trial) error {
		if err := do(ctx, t); err != nil {
			return fmt.Errorf("%s (%s): %w", t, driverName(t.index), err)
		}
		return nil
	})
}

func (r *crashing) run(ctx context.Context) error {
	first, second := r.hubs[0], r.hubs[1]
	compete := second.proxy.begin(trouble{kind: APILeases, share: 1})
	if err := second.start(ctx); err != nil {
		return err
	}
	if err := first.current().WaitReady(ctx, len(r.trials)); err != nil {
		return err
	}
	if err := r.each(ctx, func(ctx context.Context, t *trial) error { return t.setup(ctx, t) }); err != nil {
		return err
	}
	if err := r.begin(ctx); err != nil {
		return err
	}
	if err := r.crash(ctx, compete); err != nil {
		return err
	}
	// What is wished is reached, and then everything can be detached and deleted.
	if err := r.settle(ctx, 0); err != nil {
		return err
	}
	if err := r.clear(ctx); err != nil {
		r.find(Finding{Text: err.Error()})
	}
	return r.settle(ctx, 0)
}

// begin begins all scenarios. The watch of the second process lags from before or after that.
func (r *crashing) begin(ctx context.Context) error {
	if err := r.pass(ctx); err != nil {
		return err
	}
	if err := r.each(ctx, func(_ context.Context, t *trial) error { return t.arm(ctx) }); err != nil {
		return err
	}
	lag := r.hubs[1].proxy.Lags[r.lag.Resource]
	if lag != nil && !r.lag.Late {
		lag.Begin()
	}
	r.triggered = r.history.moment(time.Now())
	if err := r.each(ctx, func(ctx context.Context, t *trial) error { return t.trigger(ctx, t) }); err != nil {
		return err
	}
	if lag != nil && r.lag.Late {
		if err := r.pass(ctx); err != nil {
			return err
		}
		lag.Begin()
	}
	r.keepTouching(ctx)
	return nil
}

// pass changes an object of the resource that lags, and waits until the second process has seen that.
func (r *crashing) pass(ctx context.Context) error {
	resource := cmp.Or(r.lag.Resource, "volumeattachments")
	var o metav1.Object
	err := r.touch(ctx)
	if err == nil && resource == "persistentvolumes" {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"passed":"%d"}}}`, time.Now().UnixNano())
		o, err = r.client.CoreV1().PersistentVolumes().Patch(ctx, r.all[1].name, types.MergePatchType, patch, metav1.PatchOptions{})
	} else if err == nil {
		o, err = r.client.StorageV1().VolumeAttachments().Get(ctx, touched.Name, metav1.GetOptions{})
	}
	if err != nil {
		return err
	}
	return until(ctx, "the second process has seen "+resource, func() bool { return r.hubs[1].proxy.Lags[resource].Has(o.GetResourceVersion()) })
}

// until asks again and again until something holds. what says for the error what it is.
func until(ctx context.Context, what string, holds func() bool) error {
	for !holds() {
		if wait(ctx, lookEvery); ctx.Err() != nil {
			return fmt.Errorf("wait until %s: %w", what, context.Cause(ctx))
		}
	}
	return nil
}

// judgeSteps checks that the scenario names each step of the first process: it could be killed there too.
func (t *trial) judgeSteps(h record) {
	judge := func(step string) {
		if step = t.own(step); !slices.Contains(t.steps, step) {
			t.find(Finding{About: driverName(t.index), Text: fmt.Sprintf("the process has done %q, which the scenario does not name", step)})
		}
	}
	for _, w := range h.writes {
		if w.At > t.triggered && w.By == t.hubs[0].name && w.Driver == driverName(t.index) && w.Lease == nil {
			judge(strings.ToLower(w.Verb) + " " + strings.ReplaceAll(w.Object, "/", " "))
		}
	}
	for _, c := range h.calls {
		if c.At > t.triggered && hubOf(c.By) == t.hubs[0].name && c.Driver == driverName(t.index) {
			judge(fmt.Sprintf("%s %s %s", c.Method, c.Volume, c.Node))
		}
	}
}

// arm keeps the request of the point back, or its answer, until the process is killed.
func (t *trial) arm(ctx context.Context) error {
	if !t.IsDangerous() {
		t.hubs[0].proxy.begin(trouble{kind: Crashes, is: func(step string) bool { return t.own(step) == t.step }, lost: t.lost, reached: func() { t.reached <- struct{}{} }})
		return nil
	}
	call := strings.Fields(t.step)
	h := fakecsi.Hang{Method: fakecsi.Method(call[0]), Volume: fmt.Sprintf("d%d-%s", t.index, call[1]), Node: call[2], AfterEffect: t.lost}
	t.running.Go(func() {
		err := t.backend().Wait(ctx, func(b fakecsi.Books) bool {
			hangs := slices.ContainsFunc(b.Running, func(c fakecsi.Call) bool { return c.Method == h.Method && c.Volume == h.Volume && c.Node == h.Node })
			return hangs && (!h.AfterEffect || b.IsAttached(h.Volume, h.Node) == (h.Method == publish))
		})
		if err == nil {
			t.reached <- struct{}{}
		}
	})
	return t.backend().Set(fakecsi.Knobs{Hang: []fakecsi.Hang{h}})
}

// crash kills the first process when each trial is at its point, and lets the second one take over.
func (r *crashing) crash(ctx context.Context, compete func()) error {
	reaching, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	for _, t := range r.trials {
		select {
		case <-t.reached:
		case <-reaching.Done():
			if len(t.reached) == 0 { // select takes either case if both are there
				r.outcome.Missed = append(r.outcome.Missed, t.String())
			}
		}
	}
	wait(ctx, settleTime)
	r.hubs[0].kill()
	r.history.takenOver()
	h := r.history.record()
	err := r.each(ctx, func(ctx context.Context, t *trial) error {
		t.judgeSteps(h)
		err := t.backend().Wait(ctx, func(b fakecsi.Books) bool { return b.AttachInFlight.Now == 0 })
		if err == nil {
			err = t.backend().Set(fakecsi.Knobs{ReleaseAll: true})
		}
		return err
	})
	if err != nil {
		return err
	}
	s, err := r.lookExactly(ctx)
	if err != nil {
		return err
	}
	for _, f := range findingsOf(s.Statuses(), s.Guarded()) {
		if t := r.trialOf(f.About); t != nil && !t.untrue {
			r.find(Finding{About: f.About, Text: "when it was killed: " + f.Text, at: time.Now()})
		}
	}
	leases := r.client.CoordinationV1().Leases(namespace)
	all, err := leases.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, l := range all.Items { // those of drivers, and of the replica
		if _, err := leases.Patch(ctx, l.Name, types.MergePatchType, []byte(`{"spec":{"leaseDurationSeconds":1}}`), metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	compete()
	if lag := r.hubs[1].proxy.Lags[r.lag.Resource]; lag != nil {
		if err := r.hubs[1].current().WaitReady(ctx, len(r.trials)); err != nil {
			return err
		}
		wait(ctx, lagTime)
		lag.End()
	}
	return nil
}
