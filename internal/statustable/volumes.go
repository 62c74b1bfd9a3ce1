package statustable

import (
	"fmt"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/hubclient"
)

// Columns says which columns and lines a VolumeTable has.
type Columns struct {
	Wide    bool // also names, handles, calls, next tries and leases; WHY is not cut
	Headers bool
}

// VolumeTable returns VolumeAttachments as a table, in their order. The view has their drivers.
func VolumeTable(all []status.Attachment, v hubclient.View, columns Columns, style Style, now time.Time) string {
	g := grid{head: []string{"POD", "CLAIM", "VOLUME", "NODE", "DRIVER", "STATE", "AGE", "TRIES"}, optional: []string{"VOLUME", "TRIES"}, beside: 2, maxLines: 1}
	if columns.Wide {
		g.head = append(g.head, "VOLUMEATTACHMENT", "HANDLE", "CALL", "NEXT TRY", "LEASE")
		style.Width = 0
	}
	g.head = append(g.head, "WHY")
	members := v.Members()
	for _, a := range all {
		cells := []cell{{text: podsOf(a)}, {text: a.Claim}, {text: a.PersistentVolume}, {text: a.Node}, {text: a.Driver},
			{string(a.State), colorOf(a.Health.State)}, {text: age(a.Since, now)}, {text: fmt.Sprint(a.Tries)}}
		if columns.Wide {
			lease := ""
			if d := v.Driver(a.Driver); d != nil {
				lease = leader(*d, members)
			}
			cells = append(cells, cell{text: a.Name}, cell{text: a.VolumeHandle}, cell{text: callOf(a, now)}, cell{text: nextTry(a, now)}, cell{text: lease})
		}
		g.rows = append(g.rows, row{cells, []string{why(a, now)}})
	}
	var out strings.Builder
	g.write(&out, style, columns.Headers)
	return out.String()
}

// podsOf returns the Pods that use a volume: the first one by name, the others as a number.
func podsOf(a status.Attachment) string {
	if len(a.Pods) == 0 {
		return ""
	}
	return andMore(a.Pods[0], len(a.Pods)-1)
}

func andMore(first string, more int) string {
	if more > 0 {
		first += fmt.Sprintf(" +%d", more)
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

// callOf returns the call in flight and its age.
func callOf(a status.Attachment, now time.Time) string {
	if a.Call.Since.IsZero() {
		return ""
	}
	return a.Call.Method + " " + age(a.Call.Since, now)
}

// nextTry returns in how much time the next try begins.
func nextTry(a status.Attachment, now time.Time) string {
	if a.NextTry.IsZero() {
		return ""
	}
	return "in " + diagnosis.Length(a.NextTry.Sub(now))
}

// why returns why a VolumeAttachment is in its state: the worst reason of its health, or what is going on.
func why(a status.Attachment, now time.Time) string {
	switch {
	case len(a.Health.Reasons) > 0:
		return a.Health.Reasons[0].Line("VolumeAttachment", now)
	case !a.Call.Since.IsZero():
		return a.Call.Method + " has been running for " + age(a.Call.Since, now)
	}
	return a.Waits()
}
