package explore

import (
	"fmt"
	"strings"
	"time"
)

// Report is what Run has found.
type Report struct {
	States  int // distinct ones, all of which Check has looked into
	Edges   int // steps taken, faults included
	Depth   int // most steps of a shortest way to a state
	Largest int // most states of one level: the same number of steps from the start
	// Open is how many states Run did not take all steps of, because it was cut. They count as if what is wanted could
	// be reached from them.
	Open int
	// Stuck is how many states have no way without faults to a state with Reached. It is 0 if Run has ended at another
	// fault: it is known only at the end.
	Stuck   int
	Elapsed time.Duration
	// Cut says why Run ended before it had seen all states. "": it has seen all, or ended at a fault.
	Cut            string
	Counterexample *Counterexample // nil: no fault was found
}

// Complete reports whether all states of the world have been seen and no fault was found.
func (r *Report) Complete() bool { return r.Cut == "" && r.Counterexample == nil }

// String returns the report as lines of text.
func (r *Report) String() string {
	var b strings.Builder
	switch {
	case r.Cut != "":
		fmt.Fprintf(&b, "cut by %s: the steps of %s were not all taken. They count as if what is wanted could be reached from them\n", r.Cut, counted(r.Open, "state"))
	case r.Counterexample == nil:
		b.WriteString("complete: all states were seen\n")
	default:
		b.WriteString("ended at a fault\n")
	}
	fmt.Fprintf(&b, "%d states, %d edges, depth %d, largest level %d, %v, %.0f states/s\n",
		r.States, r.Edges, r.Depth, r.Largest, r.Elapsed.Round(time.Millisecond), float64(r.States)/max(r.Elapsed.Seconds(), 1e-9))
	if r.Stuck > 0 {
		fmt.Fprintf(&b, "stuck: %s\n", counted(r.Stuck, "state"))
	}
	if r.Counterexample != nil {
		b.WriteString(r.Counterexample.String())
	}
	return b.String()
}

func (r *run[S]) report() *Report {
	return &Report{States: r.table.len(), Edges: r.steps, Depth: r.depth, Largest: r.largest,
		Open: r.table.len() - r.expanded, Cut: r.cut}
}

const printEvery = 5 * time.Second

// print writes a line on how far the run is, if it is time for one.
func (r *run[S]) print() {
	if r.options.Progress == nil || time.Since(r.printed) < printEvery {
		return
	}
	r.printed = time.Now()
	fmt.Fprintf(r.options.Progress, "explore: %d states, %d open, %d edges, level %d, %v\n",
		r.table.len(), r.table.len()-r.expanded, r.steps, r.depth, time.Since(r.began).Round(time.Second))
}
