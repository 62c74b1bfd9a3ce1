package torture

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Report is the result of a run.
type Report struct {
	Seed      uint64         `json:"seed"`
	Planned   int            `json:"planned"`
	Faults    int            `json:"faults"`
	Counts    map[Kind]int   `json:"counts"` // every kind, with 0 for those that did not come
	Stretches []StretchShown `json:"stretches"`
	Calls     int            `json:"calls"` // publishes and unpublishes
	Took      time.Duration  `json:"took"`
	Findings  []Finding      `json:"findings"`
	// History is the end of the history of what the first finding is about.
	History []string `json:"history,omitempty"`
}

// StretchShown is the result of one stretch.
type StretchShown struct {
	Number   int           `json:"number"`
	Faults   int           `json:"faults"`
	Lasted   time.Duration `json:"lasted"`
	Quiet    time.Duration `json:"quiet"` // time until the audit found nothing
	Attached int           `json:"attached"`
}

func (s StretchShown) String() string {
	return fmt.Sprintf("stretch %d: %d faults in %.1f s, all right again after %.1f s, %d volumes attached",
		s.Number, s.Faults, s.Lasted.Seconds(), s.Quiet.Seconds(), s.Attached)
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
	writeCounts(&b, r.Counts)
	var slowest time.Duration
	for _, s := range r.Stretches {
		slowest = max(slowest, s.Quiet)
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
		r.Seed, r.Faults, r.Took.Round(time.Second), r.Calls, slowest.Seconds(), verdict)
	return b.String()
}

// writeCounts writes a table of the faults, the most frequent first.
func writeCounts(b *strings.Builder, counts map[Kind]int) {
	var names []Kind
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if counts[name] > 0 {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return
	}
	slices.SortStableFunc(names, func(x, y Kind) int { return counts[y] - counts[x] })
	fmt.Fprintf(b, "%6s  %s\n", "COUNT", "FAULT")
	for _, name := range names {
		fmt.Fprintf(b, "%6d  %s\n", counts[name], name)
	}
	b.WriteString("\n")
}
