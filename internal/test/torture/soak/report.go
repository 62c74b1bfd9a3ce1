package soak

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/progress"
)

// Report is the result of a run.
type Report struct {
	Options  Options
	Version  string // of the hub, such as "csi-attach-hub v1.2.0 go1.26 linux/amd64"
	Began    time.Time
	Samples  []Sample
	Findings []Finding
}

// Grew returns the names of the quantities that have grown.
func (r *Report) Grew() []string {
	var names []string
	for _, f := range r.Findings {
		if f.Grew {
			names = append(names, f.Name)
		}
	}
	return names
}

// Load returns what the hub had to do, as text.
func (r *Report) Load() string {
	last := r.Samples[len(r.Samples)-1]
	return fmt.Sprintf("%d attaches and %d detaches in %v, %d drivers with %d volumes each", last.Attached, last.Detached,
		last.At.Round(time.Second), r.Options.Drivers, r.Options.Volumes)
}

// Text returns the report as text.
func (r *Report) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s. %s\n%d samples; the first %.0f%% of the time is warm-up and is not judged.\n\n", r.Version, r.Load(), len(r.Samples), 100*warmUp)
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "QUANTITY\tUNIT\tSTART (MEDIAN)\tRISE\tALLOWED RISE\tPER HOUR\tVERDICT")
	for _, f := range r.Findings {
		allowed := "-"
		if f.bounded() {
			allowed = fmt.Sprintf("%.2f", f.Allowed)
		}
		fmt.Fprintf(table, "%s\t%s\t%.2f\t%+.2f\t%s\t%+.2f\t%s\n", f.Name, cmp.Or(f.Unit, "-"), f.Level, f.Rise, allowed, f.PerHour(), f.Verdict())
	}
	_ = table.Flush() // into memory
	b.WriteString("\nRISE is what the trend adds from the end of the warm-up to the end of the run, beyond noise; negative: no growth.\n")
	return b.String()
}

// PerHour returns the slope of the trend in units per hour.
func (f Finding) PerHour() float64 { return 3600 * f.Slope }

// Verdict returns the judgement in a word or two.
func (f Finding) Verdict() string {
	switch {
	case !f.bounded():
		return "not judged"
	case f.Grew:
		return "GREW"
	}
	return "ok"
}

// Sentence returns the judgement with its reasons: the bound, what was measured, and the verdict.
func (f Finding) Sentence() string {
	measured := fmt.Sprintf("Starts at %.2f, slope %+.2f per hour.", f.Level, f.PerHour())
	if !f.bounded() {
		return measured + " Not judged."
	}
	verdict := "OK: the rise of"
	if f.Grew {
		verdict = "GREW: the rise of"
	}
	relation := "is within"
	if f.Grew {
		relation = "is above"
	}
	return fmt.Sprintf("%s %s %.2f %s the allowed %.2f.", measured, verdict, max(0, f.Rise), relation, f.Allowed)
}

// Title returns the name of a quantity with its unit.
func (q Quantity) Title() string {
	if q.Unit == "" {
		return q.Name
	}
	return q.Name + ", " + q.Unit
}

// line returns a progress line of a run that lasts so long.
func line(samples []Sample, lasts time.Duration) string {
	last := samples[len(samples)-1]
	var parts []string
	for _, q := range quantities {
		points := q.points(samples)
		text := fmt.Sprintf("%s %.1f", q.Name, points[len(points)-1].Value)
		if q.Unit != "" {
			text += " " + q.Unit
		}
		parts = append(parts, text)
	}
	return fmt.Sprintf("%v of %v, %s: %s", last.At.Round(time.Second), lasts, progress.Left(last.At, last.At.Seconds(), lasts.Seconds()), strings.Join(parts, ", "))
}
