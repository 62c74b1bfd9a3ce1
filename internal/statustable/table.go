// Package statustable writes the table of a hub and its drivers that the subcommand status
// prints on a terminal.
package statustable

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/hubclient"
	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
)

// maxReason is the length at which a reason is cut, in characters.
const maxReason = 100

// Table returns a view as text: a line for each driver, then the problems.
func Table(v hubclient.View) string {
	var out strings.Builder
	t := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	row(t, "DRIVER", "STATE", "MODE", "LEADER", "QUEUED", "RUNNING", "FAILED", "STUCK", "OLDEST", "REASON")
	replicas := identities(v)
	for _, d := range v.Drivers {
		w := workOf(d.Driver)
		row(t, d.Name, d.State, d.Mode, leader(d, replicas), fmt.Sprint(w.queued), fmt.Sprint(w.running), fmt.Sprint(w.failed),
			fmt.Sprint(d.Stuck()), w.age(), reason(d))
	}
	_ = t.Flush() // into memory
	text := out.String()
	if len(v.Drivers) == 0 {
		text = "No driver is served.\n"
	}
	return text + problems(v)
}

// row writes one line. Cells are escaped: no text of a driver may break the table.
func row(t *tabwriter.Writer, cells ...string) {
	for i, c := range cells {
		cells[i] = cmp.Or(terminal.Line(c), "-")
	}
	fmt.Fprintln(t, strings.TrimRight(strings.Join(cells, "\t"), " "))
}

// work sums up the operations of a driver.
type work struct {
	queued, running, failed int // failed: waiting for the next try
	oldest                  time.Duration
}

func workOf(d status.Driver) work {
	var w work
	for _, l := range d.Lanes {
		w.queued += l.Queued
		w.running += l.Running
		w.failed += l.Delayed
		w.oldest = max(w.oldest, time.Duration(l.OldestSeconds*float64(time.Second)))
	}
	return w
}

func (w work) age() string {
	if w.queued+w.failed == 0 {
		return "-"
	}
	return duration.HumanDuration(w.oldest)
}

// reason returns why a driver is in its state, cut to maxReason. For a driver without a
// reason it returns the last failure of its work.
func reason(d hubclient.Driver) string {
	text := d.Reason
	if text == "" && len(d.Failures) > 0 && workOf(d.Driver).failed > 0 {
		text = "last: " + d.Failures[0].Text
	}
	if runes := []rune(terminal.Line(text)); len(runes) > maxReason {
		return string(runes[:maxReason-1]) + "…"
	}
	return text
}

// identities returns the identities of all replicas.
func identities(v hubclient.View) map[string]bool {
	all := map[string]bool{}
	for _, r := range v.Replicas {
		all[r.Overview.Identity] = true
		for _, member := range r.Overview.Replicas {
			all[member.Identity] = true
		}
	}
	return all
}

// leader returns the identity of the leader of a driver, or the name of its Pod if it is the
// only replica there: people know the Pod.
func leader(d hubclient.Driver, replicas map[string]bool) string {
	host, _, _ := strings.Cut(d.Leader, "_")
	if !replicas[d.Leader] || host == "" {
		return d.Leader
	}
	for other := range replicas {
		if name, _, _ := strings.Cut(other, "_"); name == host && other != d.Leader {
			return d.Leader // several on one host
		}
	}
	return host
}

// tried returns failures as text.
func tried(failures int) string {
	switch failures {
	case 0:
		return "not tried yet"
	case 1:
		return "tried once"
	}
	return fmt.Sprintf("tried %d times", failures)
}

// problems lists the problems that the lines of the drivers do not show.
func problems(v hubclient.View) string {
	var conflicts, unclaimed []string
	for _, c := range v.AllConflicts() {
		text := fmt.Sprintf("%s at %s: %s", c.Driver, c.Loser, c.Reason)
		if c.Winner != "" {
			text += " (served: " + c.Winner + ")"
		}
		conflicts = append(conflicts, text)
	}
	for _, attacher := range slices.Sorted(maps.Keys(v.Unclaimed)) {
		unclaimed = append(unclaimed, fmt.Sprintf("%s: %d", attacher, v.Unclaimed[attacher]))
	}
	var left []string
	for _, d := range v.Drivers {
		for _, u := range d.Unowned {
			text := fmt.Sprintf("%s: volume %s at node ID %s (node %s), %s", d.Name, u.VolumeHandle, u.NodeID, cmp.Or(u.Node, "unknown"), tried(u.Tries))
			if u.LastError != "" {
				text += ": " + u.LastError
			}
			left = append(left, text)
		}
		if more := d.UnownedCount - len(d.Unowned); more > 0 {
			left = append(left, fmt.Sprintf("%s: and %d more", d.Name, more))
		}
	}
	var out strings.Builder
	for _, section := range []struct {
		title string
		lines []string
	}{
		{"Problems", v.Problems()},
		{"Configuration errors (what was read before holds)", v.ConfigErrors()},
		{"Configuration warnings", v.ConfigWarnings()},
		{"Volumes left attached where no VolumeAttachment asks for them (to be detached)", left},
		{"Conflicts (found and not served)", conflicts},
		{"VolumeAttachments of drivers that are not served", unclaimed},
	} {
		if len(section.lines) > 0 {
			fmt.Fprintf(&out, "\n%s:\n", section.title)
		}
		for _, line := range section.lines {
			fmt.Fprintf(&out, "  %s\n", terminal.Line(line))
		}
	}
	return out.String()
}
