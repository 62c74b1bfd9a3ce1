package status

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// step is one event of the timeline: past, present or expected.
type step struct {
	Time time.Time // zero if it is not known
	Kind stepKind
	What string // may be hostile
	Text string // mostly of an error: hostile

	// Of a step that was measured:
	Begins *moment // from the first step on
	Length string
	Bar    *timeBar // nil for an instant
}

type stepKind string

const (
	stepDone   stepKind = "done"
	stepFailed stepKind = "failed"
	stepNow    stepKind = "now"
	stepNext   stepKind = "next"
)

// timeline returns the known events of a VolumeAttachment in order. The object has its beginning, the
// hub the last tries.
func timeline(in DiagnosisInput) []step {
	a := in.Attachment
	var steps []step
	add := func(t time.Time, kind stepKind, what, text string) {
		steps = append(steps, step{Time: t, Kind: kind, What: what, Text: text})
	}
	if !a.Created.IsZero() {
		add(a.Created, stepDone, fmt.Sprintf("VolumeAttachment created: attach volume %s to node %s", cmp.Or(a.PersistentVolume, a.VolumeHandle, "(inline)"), a.Node), "")
	}
	if a.Finalizer {
		add(time.Time{}, stepDone, "Finalizer added: the VolumeAttachment stays until its volume is detached", "")
	}
	if a.Operation == Detach && !a.Since.IsZero() {
		add(a.Since, stepDone, "VolumeAttachment deleted: detach the volume from node "+a.Node, "")
	}
	if a.Operation == Drift {
		add(a.Since, stepDone, "ListVolumes no longer reports the volume on node "+a.Node+": attach it again", "")
	}
	steps = append(steps, tries(in)...)
	return append(append(steps, nowOf(in)), retryOf(a)...)
}

// retryOf returns the next retry, if its time is known.
func retryOf(a Attachment) []step {
	if a.NextTry.IsZero() {
		return nil
	}
	return []step{{Time: a.NextTry, Kind: stepNext, What: fmt.Sprintf("%s retry", ordinal(max(1, a.Tries)))}}
}

// tries returns the failed tries: the driver's last failures with their time, and the number of
// earlier tries.
func tries(in DiagnosisInput) []step {
	a := in.Attachment
	var known []step
	if in.Driver != nil {
		for _, f := range in.Driver.Failures {
			if f.VolumeAttachment == a.Name {
				known = append(known, step{Time: f.Time, Kind: stepFailed, What: fmt.Sprintf("Failed to %s", f.Operation), Text: f.Text})
			}
		}
	}
	slices.Reverse(known) // the latest was first
	switch more := a.Tries - len(known); {
	case len(known) > 0 && more > 0:
		known = append([]step{{Kind: stepFailed, What: plural(more, "earlier failed try", "earlier failed tries")}}, known...)
	case len(known) == 0 && a.Tries > 0:
		known = []step{{Kind: stepFailed, What: plural(a.Tries, "failed try", "failed tries") + " in a row, the last one:", Text: a.LastError, Time: a.LastErrorTime}}
	case len(known) == 0 && a.LastError != "":
		known = []step{{Kind: stepFailed, What: "Last error", Text: a.LastError, Time: a.LastErrorTime}}
	}
	return known
}

// nowOf returns the present state. The diagnosis has its reason.
func nowOf(in DiagnosisInput) step {
	a := in.Attachment
	if a.State == Attached {
		return step{Kind: stepNow, What: "Now: attached to node " + a.Node}
	}
	s := step{Kind: stepNow, What: "Now: " + string(a.State)}
	if !a.Since.IsZero() {
		s.What += " for " + diagnosis.Length(in.Now.Sub(a.Since))
	}
	return s
}
