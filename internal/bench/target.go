package bench

import (
	"fmt"
	"math"
)

// Target is what one of the hub's figures should be.
type Target struct {
	figure  Figure
	compare string // atLeast, atMost or exactly
	value   float64
	ratio   bool // value is a ratio to the baseline
}

const (
	atLeast = "at least"
	atMost  = "at most"
	exactly = "exactly"
	// inexact is how far a figure may be from a value that it should have exactly.
	inexact = 0.005
)

// AtLeast is a target that a figure reaches from below.
func AtLeast(f Figure, value float64) Target {
	return Target{figure: f, compare: atLeast, value: value}
}

// AtMost is a target that a figure must not exceed.
func AtMost(f Figure, value float64) Target { return Target{figure: f, compare: atMost, value: value} }

// Exactly is a target for what is counted.
func Exactly(f Figure, value float64) Target {
	return Target{figure: f, compare: exactly, value: value}
}

// OfBaseline makes the value a ratio to the baseline.
func (t Target) OfBaseline() Target {
	t.ratio = true
	return t
}

// Verdict reports whether a target is met.
type Verdict struct {
	Target  string  `json:"target"` // for people
	Figure  Figure  `json:"figure"`
	Want    float64 `json:"want"`
	Got     float64 `json:"got"`
	Met     bool    `json:"met"`
	Reached string  `json:"reached"` // Got, for people
}

// String is the verdict as a line of text.
func (v Verdict) String() string {
	word := "met   "
	if !v.Met {
		word = "MISSED"
	}
	return fmt.Sprintf("%s  %s: %s", word, v.Target, v.Reached)
}

// judge looks at what the hub has reached; false if it was not measured.
func (t Target) judge(s Samples) (Verdict, bool) {
	about := descriptionOf(t.figure)
	v := Verdict{Figure: t.figure, Want: t.value}
	var measured bool
	show := about.show
	if t.ratio {
		v.Got, measured = s.ratio(t.figure, hubName, baselineName)
		show = hundredths
		v.Target = fmt.Sprintf("%s %s %s of the floor", about.title, t.compare, show(t.value))
	} else {
		v.Got, measured = s.medians(hubName)[t.figure]
		v.Target = fmt.Sprintf("%s %s %s", about.title, t.compare, show(t.value))
	}
	v.Reached = show(v.Got)
	switch t.compare {
	case atLeast:
		v.Met = v.Got >= t.value
	case atMost:
		v.Met = v.Got <= t.value
	default:
		v.Met = math.Abs(v.Got-t.value) <= inexact
	}
	return v, measured
}
