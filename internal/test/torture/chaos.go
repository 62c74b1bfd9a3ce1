package torture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// faultyLoad is the load of a run with faults. Its leases are short, so that a run can wait for their
// end. Calls take 2 s at most, which fits into a lease. A driver has fewer workers than pods, so that work waits at times.
func faultyLoad() load {
	return load{
		sorts: sorts, linger: 400 * ms, history: newHistory(), verbosity: 2,
		latency:  fakecsi.Latency{Base: 10 * ms, Jitter: 80 * ms},
		defaults: "{retry: {initial: 100ms, max: 1s}, drift: {interval: 1s}, probe: {interval: 1s}}",
		settings: func(int) settings { return settings{mode: "active", others: "workers: 4, timeout: 2s"} },
		hubFlags: []string{"--leader-election-lease-duration=3s", "--leader-election-renew-deadline=2s", "--leader-election-retry-period=500ms"},
	}
}

// Chaos carries out faults until there were enough of them, or until something does not hold. It blocks
// until everything that it has started has ended. Findings are in the report; an error says that
// the run itself could not go on.
func Chaos(ctx context.Context, o Options) (*Report, error) {
	report := &Report{Seed: o.Seed, Counts: map[Kind]int{}}
	began := time.Now()
	err := within(ctx, o, faultyLoad(), func(ctx context.Context, w *world) error {
		r := &chaos{world: w, report: report, vitals: map[*testbed.Hub]testbed.Vitals{}}
		return r.conclude(r.run(ctx))
	})
	report.Took = time.Since(began)
	return report, err
}

// chaos is one run with faults.
type chaos struct {
	*world
	report *Report
	vitals map[*testbed.Hub]testbed.Vitals // at its first quiet
}

// run carries out the stretches and checks that nothing is left at the end.
func (r *chaos) run(ctx context.Context) error {
	if err := r.quiet(ctx); err != nil {
		return err
	}
	p := planner{seed: r.options.Seed, faults: r.options.Faults, sizes: r.sizes()}
	for number := 0; r.report.Faults < r.options.Faults; number++ {
		left := r.options.Faults - r.report.Faults
		s := p.stretch(number)
		// Some planned faults turn out not to be possible.
		s.Faults = s.Faults[:min(len(s.Faults), (r.options.Faults+1)/2, left+left/10+2)]
		if err := r.stretch(ctx, s); err != nil {
			return err
		}
		fmt.Fprintf(r.options.Out, "%d of %d faults\n", r.report.Faults, r.options.Faults)
	}
	return r.finish(ctx)
}

// stretch carries out one stretch and audits after it.
func (r *chaos) stretch(ctx context.Context, s Stretch) error {
	r.history.add("", "STRETCH %d: %d hubs", s.Number, s.Hubs)
	for i, h := range r.hubs {
		if i >= s.Hubs {
			h.stop(ctx)
		} else if err := h.start(ctx); err != nil {
			return err
		}
	}
	r.hasty.Store(s.Hubs == 1)
	r.resume()
	if err := r.inject(ctx, s); err != nil {
		return err
	}
	began := time.Now()
	if err := r.quiet(ctx); err != nil {
		return err
	}
	r.report.Slowest = max(r.report.Slowest, time.Since(began))
	// A hub can notice what is lost while all is quiet only in the driver's list.
	for n := range r.Drivers {
		if err := r.carryOut(ctx, Fault{Kind: StorageLost, Target: n, Draw: uint64(s.Number)}, nil); err != nil {
			return err
		}
	}
	if err := r.quiet(ctx); err != nil {
		return err
	}
	return r.measure(ctx)
}

// inject carries out the faults of a stretch, each at its time. Soon after the last one has begun it ends
// all that still last. It blocks until every fault is over.
func (r *chaos) inject(ctx context.Context, s Stretch) error {
	healing, began := make(chan struct{}), time.Now()
	var faults sync.WaitGroup
	for _, f := range s.Faults {
		if wait(ctx, time.Until(began.Add(f.At))); ctx.Err() != nil {
			break
		}
		faults.Go(func() {
			if err := r.carryOut(ctx, f, healing); err != nil {
				r.fail(fmt.Errorf("%s: %w", f, err))
			}
		})
	}
	wait(ctx, pace)
	close(healing)
	faults.Wait()
	return ctx.Err()
}

// carryOut begins one fault and blocks until it is over.
func (r *chaos) carryOut(ctx context.Context, f Fault, healing <-chan struct{}) error {
	k := kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.Kind == f.Kind })]
	r.history.add("", "FAULT %s", f)
	began := time.Now()
	back, err := k.begin(ctx, r.world, f)
	if err != nil || back == nil {
		return err
	}
	r.mu.Lock()
	r.report.Counts[f.Kind]++
	r.report.Faults++
	r.mu.Unlock()
	select {
	case <-time.After(time.Until(began.Add(f.Length))):
	case <-healing:
	case <-ctx.Done():
	}
	r.history.add("", "end of %s", f)
	return back(ctx)
}

// resume lets the pods move again.
func (w *world) resume() {
	for _, p := range w.pods {
		select {
		case <-p.orders: // of the stretch before
		default:
		}
	}
	w.resting.Store(false)
}

// quiet lets the pods rest after their present moves, takes back what faults without a length have left behind, and waits until the audit finds nothing.
func (w *world) quiet(ctx context.Context) error {
	w.resting.Store(true)
	for _, d := range w.Drivers {
		if err := d.Backend.Set(fakecsi.Knobs{ReleaseAll: true, ClearFaults: true}); err != nil {
			return err
		}
	}
	if err := w.config.change(func(c *driversFile) { c.reset(w.load) }); err != nil {
		return err
	}
	w.history.add("", "all is healed")
	return w.settle(ctx, 2)
}

// measure compares what each hub takes with what it took at its first quiet. It has the same to do at both.
func (r *chaos) measure(ctx context.Context) error {
	for _, h := range r.hubs {
		hub := h.current()
		if hub == nil {
			continue
		}
		now, err := hub.Vitals(ctx)
		if err != nil {
			return err
		}
		was, ok := r.vitals[hub]
		if !ok {
			r.vitals[hub], was = now, now
		}
		for _, q := range quantities {
			if level := q.of(was); q.of(now) > level+faultyRise*q.allowed(level) {
				r.find(Finding{About: h.name, Text: fmt.Sprintf("%s: %.1f %s at its first quiet, and %.1f now", q.name, level, q.unit, q.of(now))})
				return errDoesNotHold
			}
		}
	}
	return nil
}

// finish removes everything that pods asked for, and checks that nothing is left and that no log has a panic or a data race.
func (w *world) finish(ctx context.Context) error {
	w.history.add("", "everything goes")
	touching, cancel := context.WithCancel(ctx)
	defer cancel()
	w.keepTouching(touching)
	if err := w.clear(ctx); err != nil {
		w.find(Finding{Text: err.Error()})
		return errDoesNotHold
	}
	if err := w.settle(ctx, 2); err != nil {
		return err
	}
	for _, h := range w.hubs {
		h.stop(ctx)
		data, _ := os.ReadFile(h.path("log")) // none if it was never started
		for _, words := range []string{"panic: ", "WARNING: DATA RACE", "fatal error: "} {
			if at := bytes.Index(data, []byte(words)); at >= 0 {
				w.find(Finding{About: h.name, Text: "its log says: " + string(data[at:min(len(data), at+2000)])})
			}
		}
	}
	return nil
}

// story returns the last lines of the history until something happened that are about that.
func (w *world) story(f Finding) []string {
	until := f.at.Add(500 * ms)
	if f.at.IsZero() {
		until = time.Now()
	}
	return w.history.last(100, until, f.About, driverOf(f.About), w.hubs[0].name, w.hubs[1].name)
}

// ran returns why a run could not go on; findings are no reason.
func ran(err error) error {
	if errors.Is(err, errDoesNotHold) {
		return nil
	}
	return err
}

// conclude fills in the rest of the report.
func (r *chaos) conclude(err error) error {
	r.report.Findings, _ = r.found()
	for _, d := range r.Drivers {
		b := d.Backend.Books()
		r.report.Calls += b.Methods[publish].Begun + b.Methods[unpublish].Begun
	}
	if !r.report.Held() {
		r.report.History = r.story(r.report.Findings[0])
	}
	return ran(err)
}

// Report is the result of a run with faults.
type Report struct {
	Seed     uint64
	Faults   int
	Counts   map[Kind]int
	Calls    int           // publishes and unpublishes
	Slowest  time.Duration // until the audit found nothing after a stretch
	Took     time.Duration
	Findings []Finding
	History  []string // the end of the history of what the first finding is about
}

// Held reports whether there are no findings.
func (r *Report) Held() bool { return len(r.Findings) == 0 }

// String returns the report as text.
func (r *Report) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(r.Counts)) {
		fmt.Fprintf(&b, "%6d  %s\n", r.Counts[name], name)
	}
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "DOES NOT HOLD: %s: %s\n", f.About, f.Text)
	}
	if len(r.History) > 0 {
		fmt.Fprintf(&b, "what happened to it, at the end:\n%s\n", strings.Join(r.History, "\n"))
	}
	verdict := "everything held"
	if !r.Held() {
		verdict = fmt.Sprintf("%d things do not hold", len(r.Findings))
	}
	fmt.Fprintf(&b, "seed %d: %d faults in %v, %d calls of drivers, all right again %.1f s after a stretch at most: %s\n",
		r.Seed, r.Faults, r.Took.Round(time.Second), r.Calls, r.Slowest.Seconds(), verdict)
	return b.String()
}
