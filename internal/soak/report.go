package soak

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is the result of a run.
type Report struct {
	Options  Options
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

// Text returns the report as text.
func (r *Report) Text() string {
	var b strings.Builder
	last := r.Samples[len(r.Samples)-1]
	fmt.Fprintf(&b, "%d attaches and %d detaches in %v, %d samples, the first %.0f%% of the time is warm-up\n\n",
		last.Attached, last.Detached, last.At.Round(time.Second), len(r.Samples), 100*warmUp)
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\tMEDIAN AT THE BEGIN\tRISE\tALLOWED\t")
	for _, f := range r.Findings {
		allowed, verdict := "-", ""
		if f.bounded() {
			allowed, verdict = fmt.Sprintf("%.2f", f.Allowed), "ok"
		}
		if f.Grew {
			verdict = "GREW"
		}
		fmt.Fprintf(table, "%s\t%.2f\t%+.2f\t%s\t%s\n", f.Title(), f.Level, f.Rise, allowed, verdict)
	}
	_ = table.Flush() // into memory
	return b.String()
}

// Title returns the name of a quantity with its unit.
func (q Quantity) Title() string {
	if q.Unit == "" {
		return q.Name
	}
	return q.Name + ", " + q.Unit
}

// line returns a progress line.
func line(samples []Sample) string {
	last := samples[len(samples)-1]
	parts := []string{fmt.Sprintf("%6s", last.At.Round(time.Second))}
	for _, q := range quantities {
		points := q.points(samples)
		parts = append(parts, fmt.Sprintf("%s %.1f", q.Name, points[len(points)-1].Value))
	}
	return strings.Join(parts, "  ")
}
