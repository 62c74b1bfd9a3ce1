package main

import (
	"fmt"
	"math"
)

// Target is a bound of one of the hub's figures.
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
	// inexact is the tolerance of exactly.
	inexact = 0.005
)

// AtLeast makes a target that is a lower bound.
func AtLeast(f Figure, value float64) Target {
	return Target{figure: f, compare: atLeast, value: value}
}

// AtMost makes a target that is an upper bound.
func AtMost(f Figure, value float64) Target { return Target{figure: f, compare: atMost, value: value} }

// Exactly makes a target for a count.
func Exactly(f Figure, value float64) Target {
	return Target{figure: f, compare: exactly, value: value}
}

// OfBaseline makes the value a ratio to the baseline.
func (t Target) OfBaseline() Target {
	t.ratio = true
	return t
}

// Verdict says whether a target is met.
type Verdict struct {
	Target  string  `json:"target"` // as text
	Figure  Figure  `json:"figure"`
	Want    float64 `json:"want"`
	Got     float64 `json:"got"`
	Met     bool    `json:"met"`
	Reached string  `json:"reached"` // Got as text
}

// String returns the verdict as a line of text.
func (v Verdict) String() string {
	word := "met   "
	if !v.Met {
		word = "MISSED"
	}
	return fmt.Sprintf("%s  %s: %s", word, v.Target, v.Reached)
}

// judge compares the target with what the hub has reached; false: the figure was not measured.
func (t Target) judge(s Samples) (Verdict, bool) {
	about := descriptionOf(t.figure)
	v := Verdict{Figure: t.figure, Want: t.value}
	var measured bool
	show := about.show
	if t.ratio {
		var ratio Ratio
		ratio, measured = s.ratio(t.figure, hubName, baselineName)
		v.Got, show = ratio.Median, hundredths
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
