package torture

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/statistics"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

const (
	// leastSamples is the least number of samples that judge needs.
	leastSamples = 12
	// sampleEvery is the least time between two samples; a long soak takes samplesInAll.
	sampleEvery, samplesInAll = 250 * ms, 240
	// sayEvery is how many samples there are between two progress lines.
	sayEvery = 6
	// earlyMoves: a pod deletes its VolumeAttachment as soon as it is made in one of so many moves.
	earlyMoves = 8
	// warmUp is the part of a soak that judge leaves out: pools and caches fill in it.
	warmUp = 0.25
	// doubt is the number of standard errors that judge subtracts from a rise.
	doubt = 2
	// faultyRise is how many times as much a hub may grow in a run with faults: it has metrics of past failures, and may lead
	// more drivers than before.
	faultyRise = 10
)

// quantity is a property of a hub that must not grow: in a soak by more than a part of its level, or by so many units,
// whichever is larger.
type quantity struct {
	name, unit  string
	of          func(testbed.Vitals) float64
	part, least float64
}

const mebibyte = 1 << 20

var quantities = []quantity{
	{"resident memory", "MiB", func(v testbed.Vitals) float64 { return float64(v.RSS) / mebibyte }, 0.10, 8},
	{"heap after GC", "MiB", func(v testbed.Vitals) float64 { return float64(v.Heap) / mebibyte }, 0.05, 1},
	{"goroutines", "", func(v testbed.Vitals) float64 { return float64(v.Goroutines) }, 0.03, 4},
	{"descriptors", "", func(v testbed.Vitals) float64 { return float64(v.Descriptors) }, 0.03, 2},
	{"waiting", "VolumeAttachments", func(v testbed.Vitals) float64 { return float64(v.Queued) }, 0.25, 10},
}

func (q quantity) allowed(level float64) float64 { return max(q.least, q.part*level) }

// SoakReport is the result of a soak.
type SoakReport struct {
	Text    string
	Grew    []string // names of the quantities that have grown
	samples []testbed.Vitals
}

// middle returns the median of values, and the standard error of that.
func middle(values []float64) (median, doubt float64) {
	median = statistics.Median(values)
	var away []float64
	for _, v := range values {
		away = append(away, math.Abs(v-median))
	}
	return median, 1.4826 * statistics.Median(away) * 1.25 / math.Sqrt(float64(len(values)))
}

// judge compares the last quarter of the samples after the warm-up with the first one.
func (r *SoakReport) judge() {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "QUANTITY\tSTART\tRISE\tALLOWED\tUNIT\tVERDICT")
	warm := r.samples[int(warmUp*float64(len(r.samples))):]
	for _, q := range quantities {
		var values []float64
		for _, v := range warm {
			values = append(values, q.of(v))
		}
		quarter := len(values) / 4
		first, firstDoubt := middle(values[:quarter])
		last, lastDoubt := middle(values[len(values)-quarter:])
		rise, verdict := last-first-doubt*math.Hypot(firstDoubt, lastDoubt), "ok"
		if rise > q.allowed(first) {
			verdict = "GREW"
			r.Grew = append(r.Grew, q.name)
		}
		fmt.Fprintf(table, "%s\t%.2f\t%+.2f\t%.2f\t%s\t%s\n", q.name, first, rise, q.allowed(first), q.unit, verdict)
	}
	_ = table.Flush() // into memory
	v := r.samples[len(r.samples)-1]
	r.Text = fmt.Sprintf("%d attaches, %d detaches, %d failed tries, %v of CPU, %d samples.\n\n%s\nSTART is the median after the warm-up of %.0f%%; RISE is what the median has risen by at the end, beyond noise.\n",
		v.Attached, v.Detached, v.Failed, v.CPU.Round(time.Second), len(r.samples), &b, 100*warmUp)
}

// Soak lets one hub work for a time without a fault, and judges. It blocks until everything
// has been stopped. Growth is in the SoakReport and no error; what does not hold is an error.
func Soak(ctx context.Context, o Options, duration time.Duration) (*SoakReport, error) {
	every := max(sampleEvery, duration/samplesInAll)
	if duration < leastSamples*every {
		return nil, fmt.Errorf("soak for %v: at least %v is needed", duration, leastSamples*every)
	}
	// Without a history the memory of this process does not grow with the run.
	calm := load{sorts: slices.Repeat(sorts, 3), latency: fakecsi.Latency{Base: 50 * ms}, early: earlyMoves,
		defaults: "{retry: {max: 5s}, drift: {interval: 1s}}", settings: func(int) settings { return settings{mode: "active"} }}
	r := &SoakReport{}
	err := within(ctx, o, calm, func(ctx context.Context, w *world) error {
		err := w.quiet(ctx)
		if err == nil {
			w.hasty.Store(true) // the one hub does not end
			w.resume()
			err = testbed.WhileRunning(ctx, w.Processes(), func(ctx context.Context) error { return r.sample(ctx, w, duration, every) })
		}
		if err == nil {
			err = w.quiet(ctx)
		}
		if err == nil {
			err = w.finish(ctx)
		}
		found, _ := w.found()
		for _, f := range found {
			err = errors.Join(err, fmt.Errorf("%s: %s", f.About, f.Text))
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("soak: %w", err)
	}
	r.judge()
	return r, nil
}

// sample takes samples until the duration is over.
func (r *SoakReport) sample(ctx context.Context, w *world, duration, every time.Duration) error {
	for began := time.Now(); ctx.Err() == nil; wait(ctx, every) {
		vitals, err := w.hubs[0].current().Vitals(ctx)
		if err != nil {
			return err
		}
		r.samples = append(r.samples, vitals)
		at := time.Since(began)
		if len(r.samples)%sayEvery == 0 {
			text := fmt.Sprintf("%v of %v", at.Round(time.Second), duration)
			for _, q := range quantities {
				text += fmt.Sprintf(", %s %.1f", q.name, q.of(vitals))
			}
			fmt.Fprintln(w.options.Out, text)
		}
		if at >= duration && len(r.samples) >= leastSamples {
			return nil
		}
	}
	return context.Cause(ctx)
}
