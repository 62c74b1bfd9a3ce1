package torture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/progress"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// faultyLoad is the load of a run with faults. Its leases are short, so that a run can wait for their
// end. Calls take 2 s at most, which fits into a lease. A driver has fewer workers than pods, so that work waits at times.
func faultyLoad() load {
	return load{
		sorts: []volume{{}, {}, {}, {block: true}, {secret: true}, {inline: true}, {shared: true}}, linger: 400 * ms, history: true, verbosity: 2,
		latency:  fakecsi.Latency{Base: 10 * ms, Jitter: 80 * ms},
		defaults: "{retry: {initial: 100ms, max: 1s}, drift: {interval: 1s}, probe: {interval: 1s}}",
		settings: func(int) settings { return settings{workers: 4, timeout: "2s", mode: "active"} },
		hubFlags: []string{"--leader-election-lease-duration=3s", "--leader-election-renew-deadline=2s", "--leader-election-retry-period=500ms"},
	}
}

// Chaos carries out faults until there were enough of them, or until something does not hold. It blocks
// until everything that it has started has ended. Findings are in the report; an error says that
// the run itself could not go on.
func Chaos(ctx context.Context, o Options) (*Report, error) {
	if o.Faults <= 0 {
		return nil, fmt.Errorf("chaos: %d faults: at least one is needed", o.Faults)
	}
	report := &Report{Seed: o.Seed, Planned: o.Faults, Counts: map[Kind]int{}, Findings: []Finding{}}
	for _, k := range kinds {
		report.Counts[k.Kind] = 0
	}
	began := time.Now()
	err := within(ctx, o, faultyLoad(), func(ctx context.Context, w *world) error {
		r := &chaos{world: w, report: report, vitals: map[int]testbed.Vitals{}}
		return r.conclude(r.run(ctx))
	})
	report.Took = time.Since(began)
	return report, err
}

// chaos is one run with faults.
type chaos struct {
	*world
	report   *Report
	vitals   map[int]testbed.Vitals // at its first quiet, by process
	takeover sync.Mutex             // held during a takeover

	counting sync.Mutex // guards Faults and Counts of the report
}

// run carries out the stretches and checks that nothing is left at the end.
func (r *chaos) run(ctx context.Context) error {
	if err := r.quiet(ctx); err != nil {
		return err
	}
	p := planner{seed: r.options.Seed, faults: r.options.Faults, sizes: r.sizes()}
	began := time.Now()
	for number := 0; r.report.Faults < r.options.Faults; number++ {
		left := r.options.Faults - r.report.Faults
		s := p.stretch(number)
		// Some planned faults turn out not to be possible.
		s.Faults = s.Faults[:min(len(s.Faults), (r.options.Faults+1)/2, left+left/10+2)]
		if err := r.stretch(ctx, s); err != nil {
			return err
		}
		fmt.Fprintf(r.options.Out, "%v; %d of %d faults, %s\n", r.report.Stretches[number], r.report.Faults, r.options.Faults,
			progress.Left(time.Since(began), float64(r.report.Faults), float64(r.options.Faults)))
	}
	return r.finish(ctx)
}

// stretch carries out one stretch and audits after it.
func (r *chaos) stretch(ctx context.Context, s Stretch) error {
	faults, began := r.report.Faults, time.Now()
	r.history.add("", "STRETCH %d: %d hubs, hasty %v", s.Number, s.Hubs, s.Hasty)
	for i, h := range r.hubs {
		if i >= s.Hubs {
			h.stop(ctx)
		} else if err := h.start(ctx); err != nil {
			return err
		}
	}
	r.hasty.Store(s.Hasty)
	r.resume()
	if err := r.inject(ctx, s); err != nil {
		return err
	}
	shown := StretchShown{Number: s.Number, Lasted: time.Since(began)}
	began = time.Now()
	if err := r.quiet(ctx); err != nil {
		return err
	}
	shown.Quiet = time.Since(began)
	// A hub can notice what is lost while all is quiet only in the driver's list.
	for n := range r.Drivers {
		if err := r.carryOut(ctx, Fault{Kind: "storage lost attachment", Target: n, Draw: uint64(s.Number)}, nil); err != nil {
			return err
		}
	}
	if err := r.quiet(ctx); err != nil {
		return err
	}
	shown.Faults, shown.Attached = r.report.Faults-faults, len(r.look().wanted)
	r.report.Stretches = append(r.report.Stretches, shown)
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
	if k.scope == onTakeover { // one at a time
		r.takeover.Lock()
		defer r.takeover.Unlock()
	}
	r.history.add("", "FAULT %s", f)
	back, err := k.begin(ctx, r.world, f)
	if err != nil || back == nil {
		return err
	}
	r.counting.Lock()
	r.report.Counts[f.Kind]++
	r.report.Faults++
	r.counting.Unlock()
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
	r.history.add("", "end of %s", f)
	return back(ctx)
}

// rest lets all pods stay where they are after their present move, resume lets them move again.
func (w *world) rest() {
	w.resting.Store(true)
	for _, p := range w.pods {
		p.nudge()
	}
}

func (w *world) resume() {
	for _, p := range w.pods {
		select {
		case <-p.orders: // of the stretch before
		default:
		}
	}
	w.resting.Store(false)
}

// quiet lets the pods rest, takes back what faults without a length have left behind, and waits until the audit finds nothing.
func (w *world) quiet(ctx context.Context) error {
	w.rest()
	for i, d := range w.Drivers {
		err := d.Backend.Set(fakecsi.Knobs{ReleaseAll: true, ClearFaults: true, NotReady: new(false), PublishContext: usualContext,
			Latency: fakecsi.AttachLatency(w.load.latency).Latency})
		if err = errors.Join(err, w.config.set(func(s *settings) { *s = w.load.settings(i) }, i)); err != nil {
			return err
		}
	}
	for _, v := range w.persistent() {
		if err := v.create(ctx); err != nil {
			return err
		}
	}
	w.history.add("", "all is healed")
	return w.settle(ctx, 2)
}

// How much more a process may take at a quiet than at its first one. It has the same to do at
// both, but later it may lead more drivers, and has metrics of past failures.
const (
	moreGoroutines = 40
	moreFiles      = 8
	moreHeap       = 4 << 20
)

// grown says what a process takes too much of; empty: nothing.
func grown(was, is testbed.Vitals) string {
	for _, c := range []struct {
		what          string
		was, is, more int
	}{
		{"goroutines", was.Goroutines, is.Goroutines, max(moreGoroutines, was.Goroutines/4)},
		{"open files", was.Descriptors, is.Descriptors, max(moreFiles, was.Descriptors/4)},
		{"bytes of heap", int(was.Heap), int(is.Heap), max(moreHeap, int(was.Heap)/2)},
	} {
		if c.is > c.was+c.more {
			return fmt.Sprintf("it had %d %s at its first quiet, and has %d now", c.was, c.what, c.is)
		}
	}
	return ""
}

// measure compares what each hub takes with what it took at its first quiet.
func (r *chaos) measure(ctx context.Context) error {
	for _, h := range r.hubs {
		l := h.current()
		if l == nil {
			continue
		}
		var now testbed.Vitals
		if err := testbed.Insist(ctx, "ask "+h.name+" what it takes", func(ctx context.Context) (err error) { now, err = l.Vitals(ctx); return err }); err != nil {
			return err
		}
		if was, ok := r.vitals[l.PID()]; !ok {
			r.vitals[l.PID()] = now
		} else if text := grown(was, now); text != "" {
			r.find(Finding{About: h.name, Text: text})
			return errDoesNotHold
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
	}
	for _, h := range w.hubs {
		data, err := os.ReadFile(h.path("log"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // this hub was never started
			return err
		}
		for _, words := range []string{"panic: ", "WARNING: DATA RACE", "fatal error: "} {
			if at := bytes.Index(data, []byte(words)); at >= 0 {
				w.find(Finding{About: h.name, Text: "its log says: " + string(data[at:min(len(data), at+2000)])})
			}
		}
	}
	return nil
}

// storyLines bounds Report.History.
const storyLines = 100

// conclude fills in the rest of the report.
func (r *chaos) conclude(err error) error {
	found, _ := r.found()
	r.report.Findings = append(r.report.Findings, found...)
	for _, d := range r.Drivers {
		b := d.Backend.Books()
		r.report.Calls += b.Methods[publish].Begun + b.Methods[unpublish].Begun
	}
	if !r.report.Held() {
		f := r.report.Findings[0]
		until := f.at.Add(500 * ms)
		if f.at.IsZero() {
			until = time.Now()
		}
		r.report.History = r.history.last(storyLines, until, f.About, driverOf(f.About), r.hubs[0].name, r.hubs[1].name)
	}
	if errors.Is(err, errDoesNotHold) {
		return nil
	}
	return err
}
