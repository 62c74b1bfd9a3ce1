package statustable

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/hubclient"
	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
)

const (
	// mostInTrouble is how many volumes in trouble a Report has at most.
	mostInTrouble = 1000
	// mostGroups is how many lines of volumes in trouble its text has.
	mostGroups = 10
)

// Report is the state of a hub at one moment: what status shows as text and as JSON.
type Report struct {
	AsOf    time.Time `json:"asOf"`
	Summary Summary   `json:"summary"`
	hubclient.View
	// VolumesInTrouble are those whose health is broken or attention: the worst first, at most mostInTrouble.
	// Summary counts them all.
	VolumesInTrouble []status.Attachment `json:"volumesInTrouble"`
	// Problems are problems of the replicas themselves, each as a line for people.
	Problems []string `json:"problems,omitempty"`
}

// Summary counts what a Report has.
type Summary struct {
	// Headline says what matters most, as the first line of the page.
	Headline string `json:"headline"`
	// Health is the worst of all drivers and volumes. A problem of a replica and a rejected configuration
	// count as attention.
	Health  status.HealthState         `json:"health"`
	Drivers map[status.HealthState]int `json:"drivers"` // by health
	Volumes VolumeCounts               `json:"volumes"`
}

// VolumeCounts counts VolumeAttachments of the served drivers by what they wait for, and all by health.
type VolumeCounts struct {
	Waiting int `json:"waiting"` // to be attached or detached, also while a call runs
	// Stuck, Broken and Attention count some of these.
	Stuck     int `json:"stuck"`
	Broken    int `json:"broken"`
	Attention int `json:"attention"`
}

// NewReport returns the Report of a view. trouble has the volumes in trouble, which NewReport sorts, and listErr says
// what could not be listed of them.
func NewReport(v hubclient.View, trouble []status.Attachment, listErr error, now time.Time) Report {
	r := Report{AsOf: now.UTC(), View: v, Problems: v.Problems()}
	if listErr != nil {
		r.Problems = append(r.Problems, strings.Split(listErr.Error(), "\n")...)
	}
	s := &r.Summary
	s.Drivers = map[status.HealthState]int{}
	var drivers []status.Driver
	for _, d := range v.Drivers {
		drivers = append(drivers, d.Driver)
		s.Drivers[d.Health.State]++
		w := d.Work()
		s.Volumes.Waiting += w.Queued + w.Delayed + w.Running
		s.Volumes.Stuck += w.Stuck
	}
	for _, a := range trouble {
		if a.Health.State == status.Broken {
			s.Volumes.Broken++
		} else {
			s.Volumes.Attention++
		}
	}
	s.Health, s.Headline = status.Headline(v.Config(), drivers, trouble, now)
	if n := len(r.Problems); n > 0 {
		s.Health = slices.MinFunc([]status.HealthState{s.Health, status.Attention}, status.HealthState.Compare)
		s.Headline = fmt.Sprintf("%d %s with the replicas; %s", n, map[bool]string{true: "problem", false: "problems"}[n == 1], s.Headline)
	}
	status.WorstFirst(trouble)
	r.VolumesInTrouble = append([]status.Attachment{}, trouble[:min(len(trouble), mostInTrouble)]...)
	return r
}

// Text returns the Report as text: a summary, a line for each driver, the volumes in trouble, then the problems.
func (r Report) Text(s Style) string {
	var out strings.Builder
	for _, line := range Wrap(r.Summary.Headline+"; as of "+r.AsOf.Format("15:04:05 MST"), s.Width, mostLines) {
		out.WriteString(s.Paint(line, r.Summary.Health) + "\n")
	}
	if len(r.Drivers) > 0 {
		out.WriteString("\n" + r.driverTable().Text(s))
	}
	if len(r.VolumesInTrouble) > 0 {
		table, more := r.troubleTable(s.Wide)
		out.WriteString("\nVolumes in trouble:\n" + table.Text(s))
		if more > 0 {
			fmt.Fprintf(&out, "and %d more: csi-attach-hub volumes\n", more)
		}
	}
	if len(r.VolumesInTrouble)+r.Summary.Drivers[status.Broken]+r.Summary.Drivers[status.Attention] > 0 {
		out.WriteString("\ncsi-attach-hub explain pod/NAMESPACE/NAME or driver/NAME says what to do.\n")
	}
	r.sections(&out)
	return out.String()
}

// driverTable has a row for each driver: the worst first, then by name.
func (r Report) driverTable() Table {
	t := Table{Titles: []string{"DRIVER", "HEALTH", "STATE", "LEADER", "WAITING", "RUNNING", "FAILING", "STUCK", "OLDEST", "REASON"},
		Colored: "HEALTH", Optional: []string{"LEADER", "RUNNING", "STATE"}}
	worst := func(a, b hubclient.Driver) int { return a.Health.State.Compare(b.Health.State) }
	for _, d := range slices.SortedStableFunc(slices.Values(r.Drivers), worst) {
		var reasons []string
		for _, reason := range d.Health.Reasons {
			reasons = append(reasons, reason.Line("driver", r.AsOf))
		}
		state, w := d.State, d.Work()
		if d.Mode == "observe" {
			state += " (observe)"
		}
		leader, _, _ := strings.Cut(d.Leader, "_") // the name of the Pod
		oldest := w.OldestSince
		if call := w.OldestCall.Since; oldest.IsZero() || !call.IsZero() && call.Before(oldest) {
			oldest = call
		}
		row := Row{Health: d.Health.State, Texts: reasons, Cells: []string{d.Name, string(d.Health.State), state, leader, fmt.Sprint(w.Queued + w.Delayed), fmt.Sprint(w.Running),
			fmt.Sprint(w.Failing), fmt.Sprint(w.Stuck), age(oldest, r.AsOf)}}
		if w.Stuck > 0 {
			row.Red = "STUCK"
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// troubleTable has a row for the volumes in trouble for the same reason. more counts those that it leaves out.
func (r Report) troubleTable(wide bool) (t Table, more int) {
	groups := status.Groups(r.VolumesInTrouble)
	groups = groups[:min(len(groups), mostGroups)]
	more = r.Summary.Volumes.Broken + r.Summary.Volumes.Attention
	for _, group := range groups {
		more -= len(group)
	}
	return Volumes(slices.Values(groups), wide, r.AsOf), more
}

// sections writes the problems that the tables do not show.
func (r Report) sections(out *strings.Builder) {
	section := func(title string, lines []string) {
		if len(lines) > 0 {
			fmt.Fprintf(out, "\n%s:\n", title)
		}
		for _, line := range lines {
			fmt.Fprintf(out, "  %s\n", terminal.Line(line))
		}
	}
	section("Problems", r.Problems)
	config := r.Config()
	var lines []string
	for _, f := range config.Files {
		if f.Rejected != "" {
			lines = append(lines, f.Rejected)
		}
	}
	section("Configuration errors", append(lines, config.Errors...))
	section("Configuration warnings", config.Warnings)
	lines = nil
	for _, c := range config.Conflicts {
		text := fmt.Sprintf("%s at %s: %s", c.Driver, c.Loser, c.Reason)
		if c.Winner != "" {
			text += " (served: " + c.Winner + ")"
		}
		lines = append(lines, text)
	}
	section("Conflicts (found and not served)", lines)
	lines = nil
	for _, attacher := range slices.Sorted(maps.Keys(r.Unserved)) {
		lines = append(lines, fmt.Sprintf("%s: %d", attacher, r.Unserved[attacher]))
	}
	section("VolumeAttachments of unserved drivers, also those that are attached", lines)
}
