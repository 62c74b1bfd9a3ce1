package torture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/progress"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// SoakOptions are those of a soak.
type SoakOptions struct {
	Options
	Duration time.Duration // of the load
	Every    time.Duration // between two samples
	Volumes  int           // of each driver; each is attached to one node at a time
	Latency  time.Duration // of the drivers' calls
}

const (
	// leastSamples is the least number of samples that Judge needs.
	leastSamples = 12
	// sayEvery is the time between two progress lines.
	sayEvery = 30 * time.Second
	// earlyMoves: a pod deletes its VolumeAttachment as soon as it is made in one of so many moves.
	earlyMoves = 8
)

func (o SoakOptions) check() error {
	if o.Drivers < 1 || o.Volumes < 1 {
		return fmt.Errorf("soak: %d drivers with %d volumes each: one of each is needed", o.Drivers, o.Volumes)
	}
	if o.Every <= 0 || o.Duration/leastSamples < o.Every {
		return fmt.Errorf("soak: a sample every %v for %v: at least %d samples are needed", o.Every, o.Duration, leastSamples)
	}
	return nil
}

// Sample has the metrics of the hub at one moment.
type Sample struct {
	At time.Duration // since the begin of the load
	testbed.Vitals
}

// Quantity is a property of the hub that changes with time.
type Quantity struct {
	Name, Unit string
	of         func(before, now Sample) float64
	// part and least bound the rise: to that part of the level or to so many units, whichever
	// is larger. Without both, growth is no fault.
	part, least float64
}

const mebibyte = 1 << 20

// quantities are all drawn; Judge judges those with a bound.
var quantities = []Quantity{
	{"resident memory", "MiB", func(_, s Sample) float64 { return float64(s.RSS) / mebibyte }, 0.10, 8},
	{"heap after GC", "MiB", func(_, s Sample) float64 { return float64(s.Heap) / mebibyte }, 0.05, 1},
	{"goroutines", "", func(_, s Sample) float64 { return float64(s.Goroutines) }, 0.03, 4},
	{"descriptors", "", func(_, s Sample) float64 { return float64(s.Descriptors) }, 0.03, 2},
	{"waiting", "VolumeAttachments", func(_, s Sample) float64 { return float64(s.Queued) }, 0.25, 10},
	{"operations", "per second", func(before, now Sample) float64 {
		return float64(now.Attached+now.Detached-before.Attached-before.Detached) / (now.At - before.At).Seconds()
	}, 0, 0},
	{"failed tries", "per second", func(before, now Sample) float64 {
		return float64(now.Failed-before.Failed) / (now.At - before.At).Seconds()
	}, 0, 0},
	{"processors in use", "", func(before, now Sample) float64 {
		return (now.CPU - before.CPU).Seconds() / (now.At - before.At).Seconds()
	}, 0, 0},
}

// points returns the values of a quantity, from the second sample on.
func (q Quantity) points(samples []Sample) (points []Point) {
	for i, s := range samples[1:] {
		points = append(points, Point{s.At, q.of(samples[i], s)})
	}
	return points
}

// bounded reports whether growth is a fault.
func (q Quantity) bounded() bool { return q.part > 0 || q.least > 0 }

// Title returns the name of a quantity with its unit.
func (q Quantity) Title() string { return strings.TrimSuffix(q.Name+", "+q.Unit, ", ") }

// Judgement is that of one quantity of a run, without its warm-up.
type Judgement struct {
	Quantity
	Trend
	Points  []Point  // with those of the warm-up
	Line    [2]Point // the trend, from the end of the warm-up
	Allowed float64  // largest rise; 0 where growth is no fault
	Grew    bool     // by more than Allowed
}

// warmUp is the part of a run that Judge leaves out: pools and caches fill in it.
const warmUp = 0.25

// Judge judges every quantity. It needs at least as many samples as Soak takes.
func Judge(samples []Sample) (judged []Judgement) {
	for _, q := range quantities {
		j := Judgement{Quantity: q, Points: q.points(samples)}
		from := time.Duration(warmUp * float64(samples[len(samples)-1].At))
		warm := j.Points[slices.IndexFunc(j.Points, func(p Point) bool { return p.At >= from }):]
		j.Trend = trendOf(warm)
		j.Line = j.line(warm)
		if q.bounded() {
			j.Allowed = max(q.least, q.part*j.Level)
			j.Grew = j.Rise > j.Allowed
		}
		judged = append(judged, j)
	}
	return judged
}

// Verdict returns the judgement in a word or two.
func (j Judgement) Verdict() string {
	switch {
	case !j.bounded():
		return "not judged"
	case j.Grew:
		return "GREW"
	}
	return "ok"
}

// Sentence returns the judgement with its reasons: the bound, what was measured, and the verdict.
func (j Judgement) Sentence() string {
	measured := fmt.Sprintf("Starts at %.2f, slope %+.2f per hour.", j.Level, 3600*j.Slope)
	switch {
	case !j.bounded():
		return measured + " Not judged."
	case j.Grew:
		return fmt.Sprintf("%s GREW: the rise of %.2f is above the allowed %.2f.", measured, j.Rise, j.Allowed)
	}
	return fmt.Sprintf("%s OK: the rise of %.2f is within the allowed %.2f.", measured, max(0, j.Rise), j.Allowed)
}

// SoakReport is the result of a soak.
type SoakReport struct {
	Options SoakOptions
	Version string // of the hub, such as "csi-attach-hub v1.2.0 go1.26 linux/amd64"
	Began   time.Time
	Samples []Sample
	Judged  []Judgement
}

// Grew returns the names of the quantities that have grown.
func (r *SoakReport) Grew() (names []string) {
	for _, j := range r.Judged {
		if j.Grew {
			names = append(names, j.Name)
		}
	}
	return names
}

// Load returns what the hub had to do, as text.
func (r *SoakReport) Load() string {
	last := r.Samples[len(r.Samples)-1]
	return fmt.Sprintf("%d attaches and %d detaches in %v, %d drivers with %d volumes each", last.Attached, last.Detached,
		last.At.Round(time.Second), r.Options.Drivers, r.Options.Volumes)
}

// Text returns the report as text.
func (r *SoakReport) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s. %s\n%d samples; the first %.0f%% of the time is warm-up and is not judged.\n\n", r.Version, r.Load(), len(r.Samples), 100*warmUp)
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "QUANTITY\tUNIT\tSTART (MEDIAN)\tRISE\tALLOWED RISE\tPER HOUR\tVERDICT")
	for _, j := range r.Judged {
		fmt.Fprintf(table, "%s\t%s\t%.2f\t%+.2f\t%.2f\t%+.2f\t%s\n", j.Name, cmp.Or(j.Unit, "-"), j.Level, j.Rise, j.Allowed, 3600*j.Slope, j.Verdict())
	}
	_ = table.Flush() // into memory
	b.WriteString("\nRISE is what the trend adds from the end of the warm-up to the end of the run, beyond noise; negative: no growth.\n")
	return b.String()
}

// Soak lets one hub work for the Duration without a fault, and judges. It blocks until everything
// has been stopped. Growth is in the SoakReport and no error; what does not hold is an error.
func Soak(ctx context.Context, o SoakOptions) (*SoakReport, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	version, err := exec.CommandContext(ctx, o.Hub, "version").Output()
	if err != nil {
		return nil, fmt.Errorf("soak: ask %s for its version: %w", o.Hub, err)
	}
	r := &SoakReport{Options: o, Version: strings.TrimSpace(string(version)), Began: time.Now()}
	// Without a history the memory of this process does not grow with the run.
	calm := load{sorts: make([]volume, o.Volumes), latency: fakecsi.Latency{Base: o.Latency}, early: earlyMoves,
		defaults: "{retry: {max: 5s}, drift: {interval: 1s}}", settings: func(int) settings { return settings{} }}
	for i := range calm.sorts { // as chaos has them
		sort := &calm.sorts[i]
		sort.block, sort.secret, sort.inline, sort.shared = i%7 == 3, i%7 == 4, i%7 == 5, i%7 == 6
	}
	err = within(ctx, o.Options, calm, func(ctx context.Context, w *world) error {
		err := w.quiet(ctx)
		if err == nil {
			w.hasty.Store(true) // the one hub does not end
			w.resume()
			hub := w.hubs[0].current().Hub
			fmt.Fprintf(w.options.Out, "%s; the hub is pid %d at %s\n", o.Duration, hub.PID(), hub.URL)
			err = testbed.WhileRunning(ctx, w.Processes(), func(ctx context.Context) error { return r.sample(ctx, hub) })
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
	r.Judged = Judge(r.Samples)
	return r, nil
}

// sample takes samples until the Duration is over.
func (r *SoakReport) sample(ctx context.Context, hub *testbed.Hub) error {
	began, said := time.Now(), time.Now()
	tick := time.NewTicker(r.Options.Every)
	defer tick.Stop()
	for {
		vitals, err := hub.Vitals(ctx)
		if err != nil {
			return fmt.Errorf("take a sample after %v: %w", time.Since(began).Round(time.Second), err)
		}
		at := time.Since(began)
		r.Samples = append(r.Samples, Sample{at, vitals})
		if time.Since(said) >= sayEvery && r.Options.Out != nil {
			said = time.Now()
			text := fmt.Sprintf("%v of %v, %s", at.Round(time.Second), r.Options.Duration, progress.Left(at, at.Seconds(), r.Options.Duration.Seconds()))
			for _, q := range quantities {
				points := q.points(r.Samples)
				text += fmt.Sprintf(", %s %.1f", q.Title(), points[len(points)-1].Value)
			}
			fmt.Fprintln(r.Options.Out, text)
		}
		if at >= r.Options.Duration && len(r.Samples) > leastSamples {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
