package torture

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

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
