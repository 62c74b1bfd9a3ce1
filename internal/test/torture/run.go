package torture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/progress"
)

const (
	// historyLines bounds Report.History.
	historyLines = 60
	// closeTime bounds the stop of everything.
	closeTime = time.Minute
)

// Run carries out faults until there were enough of them, or until the audit has findings. It blocks
// until everything that it has started has ended. Findings are in the report; an error says that
// the run itself could not go on.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Faults <= 0 {
		return nil, fmt.Errorf("run chaos: %d faults: at least one is needed", o.Faults)
	}
	return carryOut(ctx, o, faultyLoad(), func(ctx context.Context, r *run) error { return r.run(ctx) })
}

// errDoesNotHold ends a run early: its report has findings.
var errDoesNotHold = errors.New("something does not hold")

// carryOut starts a world, acts in it, and stops it.
func carryOut(ctx context.Context, o Options, l load, act func(context.Context, *run) error) (*Report, error) {
	o = o.filled()
	ctx, cancel := context.WithCancel(ctx)
	w, err := newWorld(ctx, o, l)
	r := &run{world: w, injector: newInjector(w), began: time.Now(), report: &Report{Seed: o.Seed, Planned: o.Faults, Findings: []Finding{}}}
	if err == nil {
		err = act(ctx, r)
	}
	if errors.Is(err, errDoesNotHold) {
		err = nil
	}
	r.conclude()
	cancel()
	ending, done := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer done()
	if closed := w.close(ending); closed != nil {
		err = errors.Join(err, closed)
	}
	return r.report, err
}

// run is one run.
type run struct {
	*world
	injector *injector
	began    time.Time
	faulty   time.Time // when the first stretch began
	report   *Report
}

// run carries out the stretches and checks that nothing is left at the end.
func (r *run) run(ctx context.Context) error {
	if err := r.quiet(ctx); err != nil {
		return err
	}
	r.faulty = time.Now()
	p := planner{seed: r.options.Seed, faults: r.options.Faults, sizes: r.sizes()}
	for number := 0; r.injector.carriedOut() < r.options.Faults; number++ {
		left := r.options.Faults - r.injector.carriedOut()
		s := p.stretch(number)
		// Some planned faults turn out not to be possible.
		s.Faults = s.Faults[:min(len(s.Faults), (r.options.Faults+1)/2, left+left/10+2)]
		if err := r.stretch(ctx, p, s); err != nil {
			return err
		}
	}
	return r.finish(ctx)
}

// stretch carries out one stretch and audits after it.
func (r *run) stretch(ctx context.Context, p planner, s Stretch) error {
	before, began := r.injector.carriedOut(), time.Now()
	r.history.add("", "STRETCH %d: %d hubs, hasty %v", s.Number, s.Hubs, s.Hasty)
	for i, h := range r.hubs {
		if i >= s.Hubs {
			h.stop(ctx)
		} else if err := h.start(ctx); err != nil {
			return err
		}
	}
	r.surviving.Store(p.survives(s.Number, 0))
	r.hasty.Store(s.Hasty)
	r.resume()
	if err := r.injector.run(ctx, s); err != nil {
		return err
	}
	shown := StretchShown{Number: s.Number, Faults: r.injector.carriedOut() - before, Lasted: time.Since(began)}
	began = time.Now()
	if err := r.quiet(ctx); err != nil {
		return err
	}
	shown.Quiet = time.Since(began)
	if err := r.injector.loseLast(ctx, s); err != nil {
		return err
	}
	if err := r.quiet(ctx); err != nil {
		return err
	}
	shown.Faults = r.injector.carriedOut() - before
	shown.Attached = len(r.look().wanted)
	r.report.Stretches = append(r.report.Stretches, shown)
	fmt.Fprintf(r.options.Out, "%v; %d of %d faults, %s\n", shown, r.injector.carriedOut(), r.options.Faults,
		progress.Left(time.Since(r.faulty), float64(r.injector.carriedOut()), float64(r.options.Faults)))
	return r.measure(ctx, s.Number)
}

// quiet heals all faults, lets the pods rest and waits until the audit finds nothing.
func (r *run) quiet(ctx context.Context) error {
	r.rest()
	if err := r.heal(ctx); err != nil {
		return err
	}
	r.history.add("", "all is healed")
	return r.settle(ctx)
}

// settle waits until the audit finds nothing. When that takes too long, it adds the findings to the
// report and returns errDoesNotHold.
func (r *run) settle(ctx context.Context) error {
	found, err := r.awaitQuiet(ctx)
	found = r.judgeHistory(found)
	r.report.Findings = append(r.report.Findings, found...)
	if err = errors.Join(err, ctx.Err()); err == nil && len(found) > 0 {
		err = errDoesNotHold
	}
	return err
}

// measure takes a sample of each hub.
func (r *run) measure(ctx context.Context, stretch int) error {
	for _, h := range r.hubs {
		if !h.running() {
			continue
		}
		s, err := sample(ctx, h, stretch)
		if err != nil {
			return err
		}
		r.report.Samples = append(r.report.Samples, s)
	}
	return nil
}

// finish removes everything that pods asked for, and checks that nothing is left.
func (r *run) finish(ctx context.Context) error {
	r.report.Findings = append(r.report.Findings, grown(r.report.Samples)...)
	r.history.add("", "everything goes")
	if err := r.clear(ctx); err != nil {
		r.report.Findings = append(r.report.Findings, Finding{Text: err.Error()})
		return nil
	}
	if err := r.settle(ctx); err != nil {
		return err
	}
	for _, h := range r.hubs {
		h.stop(ctx)
	}
	for _, h := range r.hubs {
		r.report.Findings = append(r.report.Findings, loggedFaults(h)...)
	}
	r.report.Findings = append(r.report.Findings, r.found()...)
	return nil
}

// loggedFaults returns the panics and data races in a hub's log.
func loggedFaults(h *replica) []Finding {
	data, err := os.ReadFile(h.log())
	if errors.Is(err, fs.ErrNotExist) {
		return nil // this hub was never started
	} else if err != nil {
		return []Finding{{About: h.name, Text: err.Error()}}
	}
	var f []Finding
	for _, words := range []string{"panic: ", "WARNING: DATA RACE", "fatal error: "} {
		if at := bytes.Index(data, []byte(words)); at >= 0 {
			f = append(f, Finding{About: h.name, Text: "its log says: " + string(data[at:min(len(data), at+2000)])})
		}
	}
	return f
}

// conclude fills in the rest of the report.
func (r *run) conclude() {
	report := r.report
	report.Took = time.Since(r.began)
	report.Counts = map[Kind]int{}
	for _, k := range Kinds() {
		report.Counts[k] = 0
	}
	r.injector.mu.Lock()
	maps.Copy(report.Counts, r.injector.counts)
	report.Codes = maps.Clone(r.injector.codes)
	report.Faults = r.injector.done
	r.injector.mu.Unlock()
	for _, s := range r.storages {
		b := s.Backend.Books()
		report.Calls += b.Methods[fakecsi.ControllerPublishVolume].Begun + b.Methods[fakecsi.ControllerUnpublishVolume].Begun
	}
	if !report.Held() {
		report.History = r.story(report.Findings[0])
	}
}

// story returns the end of the history of what a finding is about: the volume with its driver, the
// hubs, and what concerns everything.
func (r *run) story(f Finding) []string {
	names := []string{f.About}
	for _, s := range r.storages {
		for _, v := range r.all {
			if v.name == f.About && v.storage == s {
				names = append(names, s.Name)
			}
		}
	}
	for _, h := range r.hubs {
		names = append(names, h.name)
	}
	until := f.at.Add(time.Second)
	if f.at.IsZero() {
		until = time.Now()
	}
	var lines []string
	for _, l := range r.history.last(historyLines, until, f.lines, names...) {
		lines = append(lines, strings.TrimSpace(l.String()))
	}
	return lines
}
