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
	Planned  int
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

// Command returns the command that runs the same plan again.
func (r *Report) Command() string {
	return fmt.Sprintf("make chaos SEED=%d FAULTS=%d", r.Seed, r.Planned)
}

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
		verdict = fmt.Sprintf("%d things do not hold; run it again with: %s", len(r.Findings), r.Command())
	}
	fmt.Fprintf(&b, "seed %d: %d faults in %v, %d calls of drivers, all right again %.1f s after a stretch at most: %s\n",
		r.Seed, r.Faults, r.Took.Round(time.Second), r.Calls, r.Slowest.Seconds(), verdict)
	return b.String()
}
