package status

import "slices"

// mostSteps is how many steps the page of a VolumeAttachment shows.
const mostSteps = 40

// timeBar is when a step was in its timeline, in thousandths.
type timeBar struct {
	Kind  string // waited, called, other or failed
	X     int
	Width int
}

// thinnestBar is the width of a step without length.
const thinnestBar = 4

// pageTimeline is the timeline on the page of a VolumeAttachment.
type pageTimeline struct {
	Timeline // zero if no steps are known
	Events   []step
}

// newPageTimeline returns the steps that the hub has recorded. Without these it returns what the object and the
// driver's last failures show: another replica works for the driver, or the hub was started since.
func newPageTimeline(in DiagnosisInput) pageTimeline {
	a := in.Attachment
	if len(a.Steps) == 0 {
		return pageTimeline{Events: timeline(in)}
	}
	p := pageTimeline{Timeline: NewTimeline(a.named(), a.Operation != "", in.Now, mostSteps)}
	lasts := false
	for _, row := range p.Rows {
		s := step{Time: row.Time, Kind: stepDone, What: row.Text, Text: row.Error, Begins: momentOf(row.Time, "+"+row.Beginning()), Length: row.Length(), Bar: p.bar(row)}
		switch {
		case row.Lasts:
			s.Kind, lasts = stepNow, true
		case row.Error != "":
			s.Kind = stepFailed
		}
		p.Events = append(p.Events, s)
	}
	if !lasts {
		p.Events = append(p.Events, nowOf(in))
	}
	if next := a.nextSteps(); next != "" && a.NextTry.IsZero() {
		p.Events = append(p.Events, step{Kind: stepNext, What: next})
	}
	p.Events = append(p.Events, retryOf(a)...)
	return p
}

// named returns the steps. The first and the last say which operation they begin and end.
func (a Attachment) named() []Step {
	steps := slices.Clone(a.Steps)
	for i, s := range steps {
		switch {
		case s.What != "":
		case s.Kind == StepCreated && a.Operation == Detach:
			steps[i].What = "marked for deletion"
		case s.Kind == StepDone && a.State == Attached:
			steps[i].What = "attached"
		}
	}
	return steps
}

// bar returns the place of a row in the whole time, nil for a row without length.
func (t Timeline) bar(row TimelineStep) *timeBar {
	if t.Seconds <= 0 || row.Seconds <= 0 {
		return nil
	}
	b := timeBar{Kind: "other", X: int(1000 * min(1, row.After/t.Seconds)), Width: int(1000 * min(1, row.Seconds/t.Seconds))}
	b.Width = max(thinnestBar, b.Width)
	b.X = min(b.X, 1000-b.Width)
	switch {
	case row.Error != "":
		b.Kind = "failed"
	case row.Kind == StepWaited:
		b.Kind = "waited"
	case row.Kind == StepCalled:
		b.Kind = "called"
	}
	return &b
}

// nextSteps says what comes after the present step, "" if nothing is due.
func (a Attachment) nextSteps() string {
	last := a.Steps[len(a.Steps)-1]
	calls := last.Kind == StepCalled && last.Lasts()
	answered := slices.IndexFunc(a.Steps, func(s Step) bool { return s.Kind == StepCalled && s.Error == "" && !s.Lasts() }) >= 0
	switch {
	case a.Operation == "" || last.Kind == StepDone || a.State == Unclaimed:
		return ""
	case a.Operation == Detach && (calls || answered):
		return "Next: remove the finalizer, then the VolumeAttachment is gone"
	case calls || answered:
		return "Next: write to the status that the volume is attached"
	case a.Operation == Detach:
		return "Next: call ControllerUnpublishVolume, then remove the finalizer"
	case !a.Finalizer:
		return "Next: write the finalizers, call ControllerPublishVolume, then write the status"
	}
	return "Next: call ControllerPublishVolume, then write the status"
}
