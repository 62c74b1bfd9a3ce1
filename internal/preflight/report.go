package preflight

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
)

// Report is the result for all drivers, as `preflight -o json` prints it. Its lists are never null.
type Report struct {
	Result  Result    `json:"result"` // the worst
	AsOf    time.Time `json:"asOf"`
	Hub     []Check   `json:"hub"`     // what does not depend on a driver
	Drivers []Driver  `json:"drivers"` // the worst first
	Notes   []string  `json:"notes"`   // what else should be known; may have texts from outside: hostile
}

// Driver is the result for one driver.
type Driver struct {
	Name     string  `json:"name"` // of the entry, or as reported by a socket; empty if it is not known
	Endpoint string  `json:"endpoint"`
	Mode     string  `json:"mode,omitempty"`
	Source   string  `json:"source,omitempty"` // where it is configured: "drivers.yaml:14"
	Result   Result  `json:"result"`
	Checks   []Check `json:"checks"`
	// Version and Capabilities are what the driver reports. Capabilities has those that matter for attaching.
	Version      string   `json:"version,omitempty"`
	Capabilities []string `json:"capabilities,omitempty"`
}

// newReport sorts the drivers, and adds up the results.
func newReport(hub []Check, drivers []Driver, notes []string, now time.Time) Report {
	r := Report{Result: worst(hub), AsOf: now.UTC().Truncate(time.Second), Hub: append([]Check{}, hub...), Drivers: append([]Driver{}, drivers...), Notes: append([]string{}, notes...)}
	for i := range r.Drivers {
		d := &r.Drivers[i]
		if d.Result = worst(d.Checks); ranks[d.Result] < ranks[r.Result] {
			r.Result = d.Result
		}
	}
	slices.SortFunc(r.Drivers, worseDriver)
	return r
}

// ExitCode returns 0 if nothing failed, 1 if something did, and 2 if there was no driver to check.
func (r Report) ExitCode() int {
	switch {
	case len(r.Drivers) == 0:
		return 2
	case r.Result == Failed:
		return 1
	}
	return 0
}

// Text returns the report for people, fit for a terminal.
func (r Report) Text() string {
	var out strings.Builder
	line := func(format string, args ...any) { out.WriteString(terminal.Line(fmt.Sprintf(format, args...)) + "\n") }
	line("%s", r.summary())
	if len(r.Hub) > 0 {
		out.WriteString("\n")
		line("hub: %s", worst(r.Hub))
		write(&out, r.Hub)
	}
	for _, d := range r.Drivers {
		out.WriteString("\n")
		line("%s: %s", d.title(), d.Result)
		write(&out, d.Checks)
	}
	if len(r.Notes) > 0 {
		out.WriteString("\nNotes:\n")
	}
	for _, n := range r.Notes {
		out.WriteString("  " + terminal.Line(n) + "\n")
	}
	return out.String()
}

// summary counts the drivers by their results.
func (r Report) summary() string {
	counts, partly := map[Result]int{}, 0
	for _, d := range r.Drivers {
		counts[d.Result]++
		if d.Result != Failed && slices.ContainsFunc(d.Checks, func(c Check) bool { return c.Result == Skipped }) {
			partly++
		}
	}
	text := fmt.Sprintf("%d of %d drivers ok", counts[OK], len(r.Drivers))
	if n := counts[Warning]; n > 0 {
		text += fmt.Sprintf(", %d with a warning", n)
	}
	if n := counts[Failed]; n > 0 {
		text += fmt.Sprintf(", %d failed", n)
	}
	if partly > 0 {
		text += fmt.Sprintf("; %d not fully checked", partly)
	}
	return text + "; nothing was changed; as of " + r.AsOf.Format(time.RFC3339)
}

func (d Driver) title() string {
	if d.Name == "" {
		return d.Endpoint
	}
	if d.Mode == "" {
		return d.Name + " at " + d.Endpoint
	}
	return d.Name + " at " + d.Endpoint + ", mode " + d.Mode
}

func write(out *strings.Builder, checks []Check) {
	const marks, names = 9, 15 // widths of the columns
	for _, c := range checks {
		fmt.Fprintf(out, "  %-*s%-*s%s\n", marks, c.Result, names, c.Name, terminal.Line(c.Reason))
		if c.Action != "" {
			fmt.Fprintf(out, "  %-*s-> %s\n", marks+names, "", terminal.Line(c.Action))
		}
	}
}
