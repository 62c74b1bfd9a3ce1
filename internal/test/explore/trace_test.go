package explore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/explore"
)

func TestReplayNamesTheStepsThatExist(t *testing.T) {
	_, err := explore.Replay(philosophers(3), []string{"0 takes left", "0 takes left"})
	want := `step 2 "0 takes left": no such step exists in this state; its steps are "0 takes right", "1 takes left", "2 takes left"` + "\nstate:\n" + `"ltt"`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %v", err, want)
	}
	_, err = explore.Replay(philosophers(2), []string{"0 takes left", "1 takes left", "sleep"})
	if err == nil || !strings.Contains(err.Error(), `step 3 "sleep": no step exists in this state`) {
		t.Errorf("got %v", err)
	}
}

func TestReplayRefusesTwoStepsOfOneName(t *testing.T) {
	twins := toy[int]{starts: []int{0}, steps: func(_ int, add func(string, int, ...mark)) { add("a", 1); add("a", 2) }}
	if _, err := explore.Replay(twins, []string{"a"}); err == nil || !strings.Contains(err.Error(), "2 steps of the state have this name") {
		t.Errorf("got %v", err)
	}
}

func TestWorldWithSeveralStarts(t *testing.T) {
	world := toy[int]{starts: []int{5, 20}, steps: func(s int, add func(string, int, ...mark)) { add("up", s+1) },
		check: func(s int) error {
			if s == 22 {
				return errors.New("22")
			}
			return nil
		}}
	r := run(t, world, explore.Options{})
	if c := r.Counterexample; c == nil || strings.Join(c.Steps, ",") != "start 1,up,up" {
		t.Fatalf("got\n%v", r)
	}
	if s, err := explore.Replay(world, r.Counterexample.Steps); s != 22 || err == nil || !strings.Contains(err.Error(), `the state after step 3 "up" is wrong: 22`) {
		t.Errorf("got %v, %v", s, err)
	}
	if _, err := explore.Replay(world, []string{"up"}); err == nil || !strings.Contains(err.Error(), `its steps are "start 0", "start 1"`) {
		t.Errorf("got %v", err)
	}
}

// failing has a step that fails or panics in the state 2.
type failing struct {
	toy[int]
	fail func() error
}

func (f failing) Steps(s int) []explore.Step[int] {
	return []explore.Step[int]{{Name: "up", Do: func() (int, error) {
		if s == 2 {
			return 0, f.fail()
		}
		return s + 1, nil
	}}}
}

func TestStepThatFailsOrPanicsIsAFault(t *testing.T) {
	for _, fail := range []func() error{
		func() error { return errors.New("failed") },
		func() error { panic("failed") },
	} {
		world := failing{toy[int]{starts: []int{0}}, fail}
		r := run(t, world, explore.Options{})
		c := r.Counterexample
		if c == nil || c.Kind != explore.StepWrong || strings.Join(c.Steps, ",") != "up,up,up" || !strings.Contains(c.Err.Error(), "failed") || c.State != "2" {
			t.Errorf("got\n%v", r)
		}
	}
}

func TestModelThatIsNotDeterministicIsAnError(t *testing.T) {
	n := 0
	world := toy[int]{starts: []int{0}, steps: func(_ int, add func(string, int, ...mark)) { n++; add("up", n) },
		check: func(s int) error {
			if s == 5 {
				return errors.New("5")
			}
			return nil
		}}
	if _, err := explore.Run(t.Context(), world, explore.Options{Workers: 1}); err == nil || !strings.Contains(err.Error(), "not deterministic") {
		t.Errorf("got %v", err)
	}
	if _, err := explore.Run(t.Context(), toy[int]{}, explore.Options{}); err == nil || !strings.Contains(err.Error(), "no state to start in") {
		t.Errorf("got %v", err)
	}
}

func BenchmarkRun(b *testing.B) {
	world := philosophers(12)
	for b.Loop() {
		r, err := explore.Run(b.Context(), world, explore.Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(r.States)/r.Elapsed.Seconds(), "states/s")
	}
}
