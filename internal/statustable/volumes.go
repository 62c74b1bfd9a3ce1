package statustable

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// Volumes returns a Table with a row for each group of VolumeAttachments: the first of them, and how many others there
// are. wide adds their names and the volume handles.
func Volumes(groups iter.Seq[[]status.Attachment], wide bool, now time.Time) Table {
	t := Table{Titles: []string{"POD", "CLAIM", "VOLUME", "NODE", "DRIVER", "STATE", "AGE", "TRIES", "WHY"}, Colored: "STATE",
		Optional: []string{"VOLUME", "TRIES", "NODE", "DRIVER", "CLAIM"}}
	if wide {
		t.Titles = slices.Insert(t.Titles, len(t.Titles)-1, "VOLUMEATTACHMENT", "HANDLE")
	}
	for group := range groups {
		var pods, claims, volumes, nodes []string
		for _, a := range group {
			pods, claims = append(pods, a.Pods...), append(claims, a.Claim)
			volumes, nodes = append(volumes, a.PersistentVolume), append(nodes, a.Node)
		}
		a := group[0]
		r := Row{Health: a.Health.State, Cells: []string{some(pods), some(claims), some(volumes), some(nodes), a.Driver, a.Doing(), age(cmp.Or(a.Since, a.Health.Since), now), fmt.Sprint(a.Tries)},
			Texts: []string{why(a, now)}}
		if len(group) > 1 {
			r.Texts[0] = fmt.Sprintf("×%d: %s", len(group), r.Texts[0])
		}
		if wide {
			r.Cells = append(r.Cells, a.Name, a.VolumeHandle)
		}
		t.Rows = append(t.Rows, r)
	}
	if !slices.ContainsFunc(t.Rows, func(r Row) bool { return r.Cells[0] != "" }) { // nobody has looked for Pods, or there are none
		t.Titles = t.Titles[1:]
		for i, r := range t.Rows {
			t.Rows[i].Cells = r.Cells[1:]
		}
	}
	return t
}

// some returns the first of several names, with the number of the others.
func some(names []string) string {
	names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
	if len(names) == 0 {
		return ""
	}
	first := names[0]
	slices.Sort(names)
	if more := len(slices.Compact(names)) - 1; more > 0 {
		return fmt.Sprintf("%s +%d", first, more)
	}
	return first
}

// age returns how long ago a time is, "" if it is not known.
func age(since, now time.Time) string {
	if since.IsZero() {
		return ""
	}
	return diagnosis.Length(now.Sub(since))
}

// why returns why a VolumeAttachment is in its state: the worst reason of its health, or what is going on.
func why(a status.Attachment, now time.Time) string {
	switch {
	case len(a.Health.Reasons) > 0:
		return a.Health.Reasons[0].Line("VolumeAttachment", now)
	case !a.Call.Since.IsZero():
		return a.Call.Method + " has been running for " + age(a.Call.Since, now)
	}
	return a.Waiting.String()
}
