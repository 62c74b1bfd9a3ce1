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

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
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
	members := v.Members()
	for _, d := range v.Drivers {
		w, oldest := d.Work(), ""
		if w.Queued+w.Delayed > 0 {
			oldest = diagnosis.Length(time.Duration(w.OldestSeconds * float64(time.Second)))
		}
		row(t, d.Name, d.State, d.Mode, leader(d, members), fmt.Sprint(w.Queued), fmt.Sprint(w.Running), fmt.Sprint(w.Delayed),
			fmt.Sprint(w.Stuck), oldest, reason(d))
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

// reason returns why a driver is in its state, cut to maxReason. For a driver without a
// reason it returns the last failure of its work.
func reason(d hubclient.Driver) string {
	text := d.Reason
	if text == "" && len(d.Failures) > 0 && d.Work().Delayed > 0 {
		text = "last: " + d.Failures[0].Text
	}
	if runes := []rune(terminal.Line(text)); len(runes) > maxReason {
		return string(runes[:maxReason-1]) + "…"
	}
	return text
}

// leader returns the identity of the leader of a driver, or the name of its Pod if it is the
// only replica there: people know the Pod.
func leader(d hubclient.Driver, members []status.Replica) string {
	host, _, _ := strings.Cut(d.Leader, "_")
	known := false
	for _, m := range members {
		if m.Identity == d.Leader {
			known = true
		} else if name, _, _ := strings.Cut(m.Identity, "_"); name == host {
			return d.Leader // several on one host
		}
	}
	if !known || host == "" {
		return d.Leader
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
