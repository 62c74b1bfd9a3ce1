package status

import (
	"cmp"
	"slices"
	"time"
)

// StepEvent is an event of an object that is no step of the hub; What says all of it. The hub sends none.
const StepEvent StepKind = "event"

// instants are the kinds of steps that have no length.
var instants = []StepKind{StepCreated, StepSeen, StepDone, StepEvent, StepOmitted}

// Lasts reports whether the step has begun and not ended.
func (s Step) Lasts() bool {
	return s.Until.IsZero() && s.Error == "" && !slices.Contains(instants, s.Kind)
}

// Text says what the step is, without times: "waited for a worker of the driver". A step that lasts is in the present
// tense: "waits for a worker of the driver". It may be hostile.
func (s Step) Text() string {
	verb := func(past, present, what string) string {
		if s.Lasts() {
			past = present
		}
		return past + " " + cmp.Or(s.What, what)
	}
	switch s.Kind {
	case StepCreated:
		return "VolumeAttachment " + cmp.Or(s.What, "created")
	case StepSeen:
		return cmp.Or(s.What, "seen by the hub")
	case StepWaited:
		return verb("waited for", "waits for", "other work")
	case StepWrote:
		return verb("wrote", "writes", "an object")
	case StepRead:
		return verb("read", "reads", "an object")
	case StepCalled:
		return verb("called", "calls", "the driver")
	case StepOmitted:
		return "left out: " + s.What
	case StepDone:
		return cmp.Or(s.What, "done")
	}
	return cmp.Or(s.What, string(s.Kind)) // an event, or a kind of a later hub
}

// length returns how long the step took until it ended, or until end if it lasts.
func (s Step) length(end time.Time) time.Duration {
	until := s.Until
	switch {
	case s.Lasts():
		until = end
	case until.IsZero():
		return 0
	}
	return max(0, until.Sub(s.Time)) // the clocks of machines differ
}
