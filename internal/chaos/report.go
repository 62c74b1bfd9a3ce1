package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Report is what came of a run.
type Report struct {
	Seed      uint64         `json:"seed"`
	Planned   int            `json:"planned"`
	Faults    int            `json:"faults"`
	Counts    map[Kind]int   `json:"counts"` // every kind, also those that did not come
	Codes     map[string]int `json:"codes"`  // of driver errors, by gRPC code
	Stretches []StretchShown `json:"stretches"`
	Calls     int            `json:"calls"` // that attach or detach
	Took      time.Duration  `json:"took"`
	Samples   []Sample       `json:"samples"`
	Findings  []Finding      `json:"findings"`
	// History of what the findings are about, the last lines.
	History []string `json:"history,omitempty"`
}

// StretchShown is one stretch of a report.
type StretchShown struct {
	Number   int           `json:"number"`
	Faults   int           `json:"faults"`
	Lasted   time.Duration `json:"lasted"`
	Quiet    time.Duration `json:"quiet"` // how long it took until all was as asked for
	Attached int           `json:"attached"`
}

func (s StretchShown) String() string {
	return fmt.Sprintf("stretch %2d: %3d faults in %4.1fs, quiet after %4.1fs, %d attached", s.Number, s.Faults, s.Lasted.Seconds(), s.Quiet.Seconds(), s.Attached)
}

// Held reports whether everything held.
func (r *Report) Held() bool { return len(r.Findings) == 0 }

// Command runs the same plan again.
func (r *Report) Command() string {
	return fmt.Sprintf("make chaos SEED=%d FAULTS=%d", r.Seed, r.Planned)
}

// String is the report as text.
func (r *Report) String() string {
	var b strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(r.Counts)) {
		fmt.Fprintf(&b, "%6d  %s\n", r.Counts[kind], kind)
	}
	if len(r.Codes) > 0 {
		b.WriteString("driver errors:")
		for _, code := range slices.Sorted(maps.Keys(r.Codes)) {
			fmt.Fprintf(&b, " %s %d", code, r.Codes[code])
		}
		b.WriteString("\n")
	}
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
	verdict := "all held"
	if !r.Held() {
		verdict = fmt.Sprintf("%d things do not hold; run it again with: %s", len(r.Findings), r.Command())
	}
	fmt.Fprintf(&b, "seed %d: %d faults in %d stretches, %d calls, %v, slowest quiet %v: %s\n", r.Seed, r.Faults, len(r.Stretches), r.Calls,
		r.Took.Round(time.Second), slowest.Round(100*time.Millisecond), verdict)
	return b.String()
}
