package statustable

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/hubclient"
)

// MostInTrouble is how many volumes in trouble a Report has at most.
const MostInTrouble = 1000

// Report is the state of a hub at one moment: what status shows as text and as JSON.
type Report struct {
	AsOf    time.Time `json:"asOf"`
	Summary Summary   `json:"summary"`
	hubclient.View
	// VolumesInTrouble are those whose health is broken or attention: the worst first, at most MostInTrouble.
	// Summary counts them all.
	VolumesInTrouble []status.Attachment `json:"volumesInTrouble"`
	// Problems are problems of the replicas themselves, each as a line for people.
	Problems []string `json:"problems,omitempty"`
}

// Summary counts what a Report has.
type Summary struct {
	// Health is the worst of all drivers and volumes. A problem of a replica and a rejected configuration
	// count as attention.
	Health   status.HealthState `json:"health"`
	Drivers  DriverCounts       `json:"drivers"`
	Volumes  VolumeCounts       `json:"volumes"`
	Replicas ReplicaCounts      `json:"replicas"`
}

// DriverCounts counts drivers by health.
type DriverCounts struct {
	Total     int `json:"total"`
	Broken    int `json:"broken"`
	Attention int `json:"attention"`
	Standby   int `json:"standby"`
	Fine      int `json:"fine"`
}

// VolumeCounts counts VolumeAttachments of the served drivers by what they wait for, and all by health.
type VolumeCounts struct {
	Waiting int `json:"waiting"` // to be attached or detached, also while a call runs
	// Stuck, Broken and Attention count some of these.
	Stuck     int `json:"stuck"`
	Broken    int `json:"broken"`
	Attention int `json:"attention"`
}

// ReplicaCounts counts the replicas.
type ReplicaCounts struct {
	Total  int `json:"total"`
	Silent int `json:"silent"` // that did not answer
	// Elsewhere counts drivers that a replica serves which was not asked or did not answer: their work is not counted.
	Elsewhere int `json:"elsewhere,omitempty"`
}

// NewReport returns the Report of a view. trouble has the volumes in trouble, and listErr says what could not be
// listed of them.
func NewReport(v hubclient.View, trouble *List, listErr error, now time.Time) Report {
	r := Report{AsOf: now.UTC(), View: v, VolumesInTrouble: append([]status.Attachment{}, trouble.Worst()...), Problems: v.Problems()}
	if listErr != nil {
		r.Problems = append(r.Problems, strings.Split(listErr.Error(), "\n")...)
	}
	r.Summary.count(v, trouble)
	r.Summary.Health = status.Fine
	worst := func(s status.HealthState) {
		if s.Compare(r.Summary.Health) < 0 {
			r.Summary.Health = s
		}
	}
	for _, d := range v.Drivers {
		worst(d.Health.State)
	}
	for _, a := range r.VolumesInTrouble[:min(1, len(r.VolumesInTrouble))] {
		worst(a.Health.State)
	}
	if len(r.Problems)+len(v.ConfigErrors()) > 0 {
		worst(status.Attention)
	}
	return r
}

func (s *Summary) count(v hubclient.View, trouble *List) {
	s.Drivers.Total, s.Replicas.Total = len(v.Drivers), len(v.Replicas)
	for _, d := range v.Drivers {
		switch d.Health.State {
		case status.Broken:
			s.Drivers.Broken++
		case status.Attention:
			s.Drivers.Attention++
		case status.Standby:
			s.Drivers.Standby++
		case status.Fine:
			s.Drivers.Fine++
		}
		w := d.Work()
		s.Volumes.Waiting += w.Queued + w.Delayed + w.Running
		s.Volumes.Stuck += w.Stuck
	}
	s.Volumes.Broken, s.Volumes.Attention = trouble.In(status.Broken), trouble.In(status.Attention)
	for _, r := range v.Replicas {
		if r.Error != "" {
			s.Replicas.Silent++
		}
	}
	s.Replicas.Elsewhere = servedElsewhere(v)
}

// servedElsewhere counts the drivers whose lease is held by a replica without an answer in the view.
func servedElsewhere(v hubclient.View) int {
	known, answered := map[string]bool{}, map[string]bool{}
	for _, r := range v.Members() {
		known[r.Identity] = true
	}
	for _, r := range v.Replicas {
		answered[r.Overview.Identity] = true
	}
	n := 0
	for _, d := range v.Drivers {
		if !d.Lease.Mine && d.Leader != "" && known[d.Leader] && !answered[d.Leader] {
			n++
		}
	}
	return n
}

// text returns the counts as one line, without the time.
func (s Summary) text() string {
	d := s.Drivers
	var text string
	switch {
	case d.Total == 0:
		return "No driver is served"
	case d.Broken > 0:
		text = fmt.Sprintf("%d of %s broken", d.Broken, plural(d.Total, "driver", "drivers"))
		if d.Attention > 0 {
			text += fmt.Sprintf(", %d %s attention", d.Attention, verb(d.Attention, "needs", "need"))
		}
	case d.Attention > 0:
		text = fmt.Sprintf("%d of %s %s attention", d.Attention, plural(d.Total, "driver", "drivers"), verb(d.Attention, "needs", "need"))
	default:
		text = fmt.Sprintf("%s, none in trouble", plural(d.Total, "driver", "drivers"))
	}
	switch waiting, stuck := s.Volumes.Waiting, s.Volumes.Stuck; {
	case waiting == 0:
		text += "; no volume waits"
	case stuck > 0:
		text += fmt.Sprintf("; %s, %d of them stuck", plural(waiting, "volume waits", "volumes wait"), stuck)
	default:
		text += fmt.Sprintf("; %s", plural(waiting, "volume waits", "volumes wait"))
	}
	if n := s.Replicas.Elsewhere; n > 0 {
		text += fmt.Sprintf("; %s served by a replica that did not answer or was not asked", plural(n, "driver is", "drivers are"))
	}
	if r := s.Replicas; r.Silent > 0 {
		text += fmt.Sprintf("; %d of %s %s not answer", r.Silent, plural(r.Total, "replica", "replicas"), verb(r.Silent, "does", "do"))
	}
	return text
}

func plural(n int, one, more string) string { return fmt.Sprintf("%d %s", n, verb(n, one, more)) }

func verb(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}

// worseDriver orders drivers: by health, then the longest in it first, then by name.
func worseDriver(a, b hubclient.Driver) int {
	return cmp.Or(a.Health.State.Compare(b.Health.State), earlier(a.Health.Since, b.Health.Since), cmp.Compare(a.Name, b.Name))
}

// TextOptions say how a Report is written as text.
type TextOptions struct {
	Style
	Wide bool // all columns, and whole texts
}

// Text returns the Report as text: a summary, a line for each driver, the volumes in trouble, then the problems.
func (r Report) Text(o TextOptions) string {
	if o.Wide {
		o.Width = 0
	}
	var out strings.Builder
	summary := r.Summary.text() + "; as of " + r.AsOf.UTC().Format("15:04:05 MST")
	painted := colorOf(r.Summary.Health)
	if r.Summary.Health == status.Standby {
		painted = ""
	}
	out.WriteString(painted.paint(summary, o.Style) + "\n")
	if len(r.View.Drivers) > 0 {
		out.WriteString("\n")
		r.driverTable(&out, o.Style)
	}
	total := r.Summary.Volumes.Broken + r.Summary.Volumes.Attention
	out.WriteString(troubleTable(r.VolumesInTrouble, total, o.Style, r.AsOf))
	if total+r.Summary.Drivers.Broken+r.Summary.Drivers.Attention > 0 {
		out.WriteString("\ncsi-attach-hub explain pod/NAMESPACE/NAME or driver/NAME says what to do.\n")
	}
	r.sections(&out)
	return out.String()
}
