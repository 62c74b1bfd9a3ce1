package torture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// phase says how far a step has come when the process is killed. "After its answer" is the same world as before the next step.
type phase int

const (
	before   phase = iota // the request was sent and has no effect
	effected              // the request took effect, and its answer is lost
)

// point is where a process is killed: at the first request with the name of the step.
type point struct {
	step  string
	phase phase
}

func (p point) String() string {
	return [...]string{"before", "without the answer of"}[p.phase] + fmt.Sprintf(" %q", p.step)
}

// Crash is a scenario, with the point where the process is killed in it.
type Crash struct {
	scenario
	point *point // nil: it is not killed
}

func (c Crash) String() string {
	if c.point == nil {
		return c.name + " without a crash"
	}
	return fmt.Sprintf("%s, killed %v", c.name, c.point)
}

// IsDangerous reports whether the process is killed at a call, whose need or success is recorded nowhere but in the
// objects that were written before it.
func (c Crash) IsDangerous() bool { return strings.HasPrefix(c.point.step, "Controller") }

// Lag says which watch of the process that takes over is late, and since when.
type Lag struct {
	Resource string // empty: none
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

// Lags are those that every crash meets.
func Lags() []Lag {
	lags := []Lag{{}}
	for _, r := range []string{"volumeattachments", "persistentvolumes", "csinodes"} {
		lags = append(lags, Lag{Resource: r}, Lag{Resource: r, Late: true})
	}
	return lags
}

const (
	// reachTime is how long processes may take to their points. A point that is not reached then has its crash where all is done.
	reachTime = 20 * time.Second
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
	crashes  []Crash  // without points: one for each point of what was run
}

// Points runs every scenario without a crash, and returns a crash for each point of each.
func Points(ctx context.Context, o Options) ([]Crash, *Outcome, error) {
	var whole []Crash
	for _, s := range scenarios {
		whole = append(whole, Crash{scenario: s})
	}
	outcome, err := RunCrashes(ctx, o, whole, Lag{})
	if err != nil {
		return nil, outcome, err
	}
	return outcome.crashes, outcome, nil
}

// RunCrashes lets one process work for all drivers, up to the point of every crash, kills it once, and lets another one, whose
// caches are filled then, take over. Each crash has a driver of its own. All have a point, or none has one.
func RunCrashes(ctx context.Context, o Options, crashes []Crash, lag Lag) (*Outcome, error) {
	o.Drivers, o.QuietWithin = len(crashes), 45*time.Second
	// The leases of a dead process are made to expire, so they need not be short: busy machines keep them.
	l := load{
		sorts: []volume{{}, {}}, history: true, verbosity: 2, defaults: "{drift: {interval: 0}, retry: {initial: 200ms, max: 2s}}",
		settings: func(driver int) settings {
			return settings{timeout: "60s", mode: "active", others: crashes[driver].settings}
		},
		hubFlags: []string{"--leader-election-lease-duration=60s", "--leader-election-renew-deadline=50s", "--leader-election-retry-period=1s"},
	}
	outcome := &Outcome{}
	err := within(ctx, o, l, func(ctx context.Context, w *world) error {
		r := &crashing{world: w, lag: lag, outcome: outcome}
		for i, c := range crashes {
			r.trials = append(r.trials, &trial{Crash: c, crashing: r, index: i, pods: w.pods[2*i : 2*i+2], reached: make(chan struct{})})
		}
		err := r.run(ctx)
		found, _ := w.found()
		for _, f := range found {
			outcome.Findings = append(outcome.Findings, fmt.Sprintf("%s: %s: %s", r.crashOf(f.About), f.About, f.Text))
		}
		if len(found) > 0 {
			outcome.History = w.history.last(storyLines, time.Now(), found[0].About, driverOf(found[0].About), "hub0", "hub1")
		}
		if errors.Is(err, errDoesNotHold) {
			return nil
		}
		return err
	})
	return outcome, err
}

// crashing is a run of crashes.
type crashing struct {
	*world
	lag     Lag
	trials  []*trial
	outcome *Outcome
}

// trial is a crash with a driver and pods of its own.
type trial struct {
	Crash
	*crashing
	index   int
	pods    []*pod        // one of each volume
	reached chan struct{} // closed at the point
}

func (t *trial) backend() *fakecsi.Backend { return t.Drivers[t.index].Backend }

// own returns a name without what differs between the drivers.
func (t *trial) own(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, fmt.Sprintf("d%d-", t.index), ""), t.ownNode(), "own")
}

// crashOf returns the crash of a volume or driver.
func (r *crashing) crashOf(about string) string {
	for _, t := range r.trials {
		if about == driverName(t.index) || driverOf(about) == driverName(t.index) {
			return t.String()
		}
	}
	return "all"
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

func (r *crashing) crashes() bool { return r.trials[0].point != nil }

func (r *crashing) run(ctx context.Context) error {
	first, second := r.hubs[0], r.hubs[1]
	compete := second.proxy.begin(trouble{kind: APILeases, share: 1})
	if err := second.start(ctx); err != nil {
		return err
	}
	if err := first.current().WaitReady(ctx, len(r.trials)); err != nil {
		return err
	}
	if err := r.each(ctx, func(ctx context.Context, t *trial) error {
		if t.setup != nil {
			return t.setup(ctx, t)
		}
		return attached(ctx, t)
	}); err != nil {
		return err
	}
	if err := r.begin(ctx); err != nil {
		return err
	}
	if !r.crashes() {
		if err := r.enumerate(ctx); err != nil {
			return err
		}
	} else if err := r.crash(ctx, compete); err != nil {
		return err
	}
	return r.end(ctx)
}

// begin begins all scenarios. The watch of the second process lags from before or after that.
func (r *crashing) begin(ctx context.Context) error {
	if err := r.pass(ctx); err != nil {
		return err
	}
	r.note(r.judgeHistory())
	if r.crashes() {
		if err := r.each(ctx, func(_ context.Context, t *trial) error { return t.arm(ctx) }); err != nil {
			return err
		}
	}
	lag := r.hubs[1].proxy.Lags[r.lag.Resource]
	if lag != nil && !r.lag.Late {
		lag.Begin()
	}
	if err := r.each(ctx, func(ctx context.Context, t *trial) error { return t.trigger(ctx, t) }); err != nil || lag == nil || !r.lag.Late {
		return err
	}
	if err := r.pass(ctx); err != nil {
		return err
	}
	lag.Begin()
	return nil
}

// note adds findings.
func (r *crashing) note(found []Finding) {
	for _, f := range found {
		r.find(f)
	}
}

// pass changes an object of the resource that lags, and waits until the second process has seen that.
func (r *crashing) pass(ctx context.Context) error {
	resource := cmp.Or(r.lag.Resource, "volumeattachments")
	var o metav1.Object
	var err error
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"passed":"%d"}}}`, time.Now().UnixNano())
	switch resource {
	case "csinodes":
		o, err = r.client.StorageV1().CSINodes().Patch(ctx, r.Nodes[nodeCount-1], types.MergePatchType, patch, metav1.PatchOptions{})
	case "persistentvolumes":
		o, err = r.client.CoreV1().PersistentVolumes().Patch(ctx, r.all[1].name, types.MergePatchType, patch, metav1.PatchOptions{})
	default:
		if err = r.touch(ctx); err == nil {
			o, err = r.client.StorageV1().VolumeAttachments().Get(ctx, touched.Name, metav1.GetOptions{})
		}
	}
	if err != nil {
		return err
	}
	return until(ctx, "the second process has seen "+resource, func() bool { return r.hubs[1].proxy.Lags[resource].Has(o.GetResourceVersion()) })
}

// until asks again and again until something holds. what says for the error what it is.
func until(ctx context.Context, what string, holds func() bool) error {
	for !holds() {
		if wait(ctx, 20*ms); ctx.Err() != nil {
			return fmt.Errorf("wait until %s: %w", what, context.Cause(ctx))
		}
	}
	return nil
}

// stepsIn returns the steps of the first process since the trigger, in their order.
func (t *trial) stepsIn(h record) (steps []string) {
	add := func(step string) {
		if step = t.own(step); !slices.Contains(steps, step) {
			steps = append(steps, step)
		}
	}
	for _, w := range h.writes {
		if w.By == t.hubs[0].name && w.Driver == driverName(t.index) && w.Lease == nil {
			add(strings.ToLower(w.Verb) + " " + strings.ReplaceAll(w.Object, "/", " "))
		}
	}
	for _, c := range h.calls {
		if hubOf(c.By) == t.hubs[0].name && c.Driver == driverName(t.index) {
			add(fmt.Sprintf("%s %s %s", c.Method, c.Volume, c.Node))
		}
	}
	return steps
}

// enumerate waits until the first process has done what is wished, and makes a crash of each of its steps.
func (r *crashing) enumerate(ctx context.Context) error {
	r.keepTouching(ctx)
	ctx, cancel := context.WithTimeout(ctx, r.options.QuietWithin)
	defer cancel()
	missing := ""
	err := until(ctx, "each step has been seen", func() bool {
		r.outcome.crashes, missing = nil, ""
		h := r.history.peek()
		for _, t := range r.trials {
			steps := t.stepsIn(h)
			for _, want := range t.Crash.steps {
				if !slices.Contains(steps, want) {
					missing += fmt.Sprintf("%s: step %q is missing in %q\n", t.name, want, steps)
				}
			}
			for _, step := range steps {
				for phase := before; phase <= effected; phase++ {
					r.outcome.crashes = append(r.outcome.crashes, Crash{t.scenario, &point{step, phase}})
				}
			}
		}
		return missing == ""
	})
	if err != nil {
		r.find(Finding{Text: missing})
		return errDoesNotHold
	}
	return r.config.set(func(s *settings) { s.mode = "active" }, r.drivers()...)
}

func (r *crashing) drivers() (all []int) {
	for i := range r.trials {
		all = append(all, i)
	}
	return all
}

// hang is what a point at a call makes of it; the zero value: the point is at a write.
func (t *trial) hang() (h fakecsi.Hang) {
	if t.IsDangerous() {
		parts := strings.Fields(t.point.step)
		h = fakecsi.Hang{Method: fakecsi.Method(parts[0]), Volume: fmt.Sprintf("d%d-%s", t.index, parts[1]),
			Node: strings.Replace(parts[2], "own", t.ownNode(), 1), AfterEffect: t.point.phase == effected}
	}
	return h
}

// arm keeps the request of the point back, or its answer, until the process is killed.
func (t *trial) arm(ctx context.Context) error {
	h := t.hang()
	if h.Method == "" {
		t.hubs[0].proxy.begin(trouble{kind: Crashes, is: func(step string) bool { return t.own(step) == t.point.step }, phase: t.point.phase, reached: func() { close(t.reached) }})
		return nil
	}
	t.running.Go(func() {
		err := t.backend().Wait(ctx, func(b fakecsi.Books) bool {
			hangs := slices.ContainsFunc(b.Running, func(c fakecsi.Call) bool { return c.Method == h.Method && c.Volume == h.Volume && c.Node == h.Node })
			return hangs && (!h.AfterEffect || b.IsAttached(h.Volume, h.Node) == (h.Method == publish))
		})
		if err == nil {
			close(t.reached)
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
			r.outcome.Missed = append(r.outcome.Missed, t.String())
		}
	}
	wait(ctx, settleTime)
	r.hubs[0].kill()
	err := r.each(ctx, func(ctx context.Context, t *trial) error {
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
	for _, f := range findingsOf(s.world().Statuses(), s.world().Guarded()) {
		if i := slices.IndexFunc(r.trials, func(t *trial) bool { return driverOf(f.About) == driverName(t.index) }); i >= 0 && !r.trials[i].untrue {
			r.find(Finding{About: f.About, Text: "when it was killed: " + f.Text, at: time.Now()})
		}
	}
	if err := r.config.set(func(s *settings) { s.mode = "active" }, r.drivers()...); err != nil {
		return err
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
		await(ctx, func() bool { return r.history.leads(r.hubs[1].name) == len(r.trials) })
		wait(ctx, lagTime)
		lag.End()
	}
	r.keepTouching(ctx)
	return nil
}

// end checks that what is wished is reached, that then everything can be detached and deleted, and that the history holds.
func (r *crashing) end(ctx context.Context) error {
	if err := r.settle(ctx, 0); err != nil {
		return err
	}
	if err := r.clear(ctx); err != nil {
		r.find(Finding{Text: err.Error()})
	}
	return r.settle(ctx, 0)
}
