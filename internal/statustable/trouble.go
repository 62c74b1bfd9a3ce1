package statustable

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// mostGroups is how many lines of volumes in trouble are shown.
const mostGroups = 10

// group is VolumeAttachments in trouble for the same reason, the oldest first.
type group []status.Attachment

// groups returns VolumeAttachments as groups, in the order of their first ones.
func groups(all []status.Attachment) []group {
	var found []group
	index := map[string]int{}
	for _, a := range all {
		var why diagnosis.Diagnosis
		if len(a.Health.Reasons) > 0 {
			why = a.Health.Reasons[0].Diagnosis
		}
		key := a.TroubleKey(why)
		at, known := index[key]
		if !known {
			at = len(found)
			index[key] = at
			found = append(found, nil)
		}
		found[at] = append(found[at], a)
	}
	return found
}

// troubleTable returns the volumes in trouble as a table, "" if there are none. total counts them all.
func troubleTable(worst []status.Attachment, total int, style Style, now time.Time) string {
	if len(worst) == 0 {
		return ""
	}
	g := grid{head: []string{"POD", "CLAIM", "NODE", "DRIVER", "STATE", "AGE", "WHY"}, optional: []string{"NODE", "DRIVER", "CLAIM"}, beside: 1, maxLines: 3}
	shown := 0
	for _, members := range groups(worst) {
		if len(g.rows) == mostGroups {
			break
		}
		shown += len(members)
		g.rows = append(g.rows, members.row(now))
	}
	var out strings.Builder
	out.WriteString("\nVolumes in trouble:\n")
	g.write(&out, style, true)
	if more := total - shown; more > 0 {
		fmt.Fprintf(&out, "and %d more: csi-attach-hub volumes\n", more)
	}
	return out.String()
}

// row returns the group as one row: its first VolumeAttachment, and how many others there are.
func (g group) row(now time.Time) row {
	first := g[0]
	var pods, claims, nodes []string
	for _, a := range g {
		pods = append(pods, a.Pods...)
		if a.Claim != "" {
			claims = append(claims, a.Claim)
		}
		nodes = append(nodes, a.Node)
	}
	text := why(first, now)
	if len(g) > 1 {
		text = fmt.Sprintf("×%d: %s", len(g), text)
	}
	return row{[]cell{{text: some(pods)}, {text: some(claims)}, {text: some(nodes)}, {text: first.Driver},
		{string(first.State), colorOf(first.Health.State)}, {text: age(first.Since, now)}}, []string{text}}
}

// some returns the first of several names, with the number of the others.
func some(names []string) string {
	if len(names) == 0 {
		return ""
	}
	first := names[0]
	return andMore(first, len(slices.Compact(slices.Sorted(slices.Values(names))))-1)
}
