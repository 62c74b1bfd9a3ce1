package statustable

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/hubclient"
	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
)

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

// sections writes the problems that the tables do not show.
func (r Report) sections(out *strings.Builder) {
	v := r.View
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
	left, dangling := unownedLines(v)
	for _, section := range []struct {
		title string
		lines []string
	}{
		{"Problems", r.Problems},
		{"Configuration errors", slices.Concat(v.RejectedFiles(), v.ConfigErrors())},
		{"Configuration warnings", v.ConfigWarnings()},
		{"Full nodes (attaches wait until a volume is detached there)", fullNodes(v)},
		{"Volumes left attached where no VolumeAttachment asks for them (to be detached)", left},
		{"Volumes listed where no VolumeAttachment asks for them (only reported; csi-attach-hub explain driver/NAME has the commands that detach them)", dangling},
		{"Conflicts (found and not served)", conflicts},
		{"VolumeAttachments of drivers that are not served", unclaimed},
	} {
		if len(section.lines) > 0 {
			fmt.Fprintf(out, "\n%s:\n", section.title)
		}
		for _, line := range section.lines {
			fmt.Fprintf(out, "  %s\n", terminal.Line(line))
		}
	}
}

// unownedLines returns a line for each volume that is published without a VolumeAttachment: those that the hub detaches,
// and those that it only reports.
func unownedLines(v hubclient.View) (left, dangling []string) {
	for _, d := range v.Drivers {
		for _, u := range d.Unowned {
			at := fmt.Sprintf("%s: volume %s at node ID %s (node %s)", d.Name, u.VolumeHandle, u.NodeID, cmp.Or(u.Node, "unknown"))
			if u.ReportOnly {
				dangling = append(dangling, fmt.Sprintf("%s since %s", at, u.Since.UTC().Format(time.RFC3339)))
				continue
			}
			text := at + ", " + tried(u.Tries)
			if u.LastError != "" {
				text += ": " + u.LastError
			}
			left = append(left, text)
		}
		if more := d.UnownedCount - len(d.Unowned); more > 0 {
			text := fmt.Sprintf("%s: and %d more", d.Name, more)
			if n := len(d.Unowned); n > 0 && d.Unowned[n-1].ReportOnly {
				dangling = append(dangling, text)
			} else {
				left = append(left, text)
			}
		}
	}
	return left, dangling
}
