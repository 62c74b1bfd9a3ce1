package hub

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// failing has one run of an operation fail, with errors of its own.
func (o *operation) failing(text string) {
	o.runs(time.Now(), nil)
	err := errors.New(text + strings.Repeat("x", 300))
	_, call := o.calls(context.Background(), "ControllerPublishVolume", time.Now())
	call.answered(&attach.Redactor{}, err)
	_ = o.do(status.StepWrote, "the error into the status", func() error { return errors.New("w " + err.Error()) })
	o.rests(err)
}

// heap returns the bytes in use.
func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

func TestStepsOfManyAttachesThatFailWithDifferentTextsTakeLittleMemory(t *testing.T) {
	for n, most := range map[int]int{10_000: 10_000_000, 100_000: 40_000_000} {
		tries := 150_000 / n
		before := heap()
		memory, all := newStepMemory(maxStepMemory), make([]*operation, n)
		for i := range all {
			all[i] = &operation{memory: memory, kind: status.Attach}
			all[i].at(status.StepCreated, "", time.Now())
			for try := range tries {
				all[i].failing(fmt.Sprintf("request %d/%d ", i, try))
			}
		}
		if got := heap() - before; got > most {
			t.Errorf("the steps of %d attaches take %d bytes, want at most %d", n, got, most)
		}
		if memory.bytes > maxStepMemory {
			t.Errorf("%d bytes are counted", memory.bytes)
		}
		first, last := all[0].steps(), all[n-1].steps()
		if len(first) != 1 || first[0].Kind != status.StepOmitted || !strings.Contains(first[0].What, fmt.Sprintf("of which %d failed", 2*tries)) {
			t.Errorf("the steps of the oldest attach are %+v", first)
		}
		if last[0].Kind != status.StepCreated {
			t.Errorf("the steps of the newest attach are %+v", last)
		}
		for _, o := range all {
			memory.release(o)
		}
		if memory.bytes != 0 || memory.ends.newer != &memory.ends {
			t.Errorf("%d bytes are counted when all have ended", memory.bytes)
		}
	}
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
