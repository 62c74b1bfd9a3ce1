package hub

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// failing has one run of an operation fail, with errors of its own.
func (o *operation) failing(text string) {
	o.runs(time.Now(), nil)
	err := errors.New(text + strings.Repeat("x", 300))
	o.calls("ControllerPublishVolume", time.Now())
	o.answered(nil, err)
	_ = o.do(status.StepWrote, "the error into the status", func() error { return errors.New("w " + err.Error()) })
	o.rests(err)
}

func TestStepsThatWereForgottenAreCountedBeforeTheLaterSteps(t *testing.T) {
	memory := newStepMemory(2000)
	o, other := &operation{memory: memory}, &operation{memory: memory}
	begun := time.Now()
	o.at(status.StepCreated, "", begun)
	o.failing("a")
	for range 10 {
		other.failing("b")
	}
	o.failing("c")
	var kinds []status.StepKind
	for _, s := range o.steps() {
		kinds = append(kinds, s.Kind)
	}
	if want := []status.StepKind{status.StepOmitted, status.StepCalled, status.StepWrote}; !slices.Equal(kinds, want) {
		t.Errorf("steps %q, want %q", kinds, want)
	}
	if s := o.steps()[0]; s.What != "3 steps, of which 2 failed" || !s.Time.Equal(time.Unix(0, begun.UnixNano())) {
		t.Errorf("the first is %+v", s)
	}
}

func TestStepsKeepTheTextsOfTheFirstErrorAndOfTheLastTwoOthers(t *testing.T) {
	o := &operation{memory: newStepMemory(maxStepMemory)}
	for _, text := range []string{"first", "second", "first", "third", "second", "fourth", "first"} {
		_ = o.do(status.StepWrote, "the status", func() error { return errors.New(text) })
	}
	var got []string
	for _, s := range o.steps() {
		got = append(got, s.Error)
	}
	if want := []string{"first", "second", "first", goneText, "second", "fourth", "first"}; !slices.Equal(got, want) {
		t.Errorf("errors %q, want %q", got, want)
	}
}
