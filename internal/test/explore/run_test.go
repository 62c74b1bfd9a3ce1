package explore_test

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/explore"
)

func run[S any](t *testing.T, model explore.Model[S], o explore.Options) *explore.Report {
	t.Helper()
	report, err := explore.Run(t.Context(), model, o)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// count goes through the states of a toy in the simplest way.
func count[S comparable](t toy[S]) (states, edges int) {
	seen := map[S]bool{}
	var visit func(S)
	visit = func(s S) {
		if seen[s] {
			return
		}
		seen[s] = true
		t.steps(s, func(_ string, to S, _ ...mark) {
			edges++
			visit(to)
		})
	}
	for _, s := range t.starts {
		visit(s)
	}
	return len(seen), edges
}

func TestLockThatIsRightIsComplete(t *testing.T) {
	states, edges := count(peterson(false))
	r := run(t, peterson(false), explore.Options{})
	if !r.Complete() || r.States != states || r.Edges != edges || r.Open != 0 || r.Stuck != 0 {
		t.Errorf("want %d states and %d edges, complete, got\n%v", states, edges, r)
	}
}

func TestLockThatIsWrongIsFoundWithAShortestTrace(t *testing.T) {
	r := run(t, peterson(true), explore.Options{})
	c := r.Counterexample
	if c == nil || c.Kind != explore.StateWrong || len(c.Steps) != 6 || c.Err.Error() != "both are inside" || r.Complete() {
		t.Fatalf("want both inside after 6 steps, got\n%v", r)
	}
	s, err := explore.Replay(peterson(true), c.Steps)
	if err == nil || !strings.Contains(err.Error(), "both are inside") || s.At != [2]int{3, 3} {
		t.Errorf("replay of the trace ends in %v with %v", s, err)
	}
	if text := c.String(); !strings.Contains(text, "\n   1  0 gives the turn away\n") || !strings.Contains(text, `state:`+"\n"+`{"At":[3,3]`) {
		t.Errorf("the trace is\n%s", text)
	}
}

func TestPhilosophersHaveAKnownNumberOfStatesAndOneDeadlock(t *testing.T) {
	for n, states := range map[int]int{2: 6, 3: 14, 5: 82, 10: 6726} { // Pell-Lucas numbers
		r := run(t, philosophers(n), explore.Options{})
		c := r.Counterexample
		if r.States != states || r.Stuck != 1 || c == nil || c.Kind != explore.Stuck || len(c.Steps) != n || len(c.Then) != 0 {
			t.Errorf("%d philosophers: want %d states and the deadlock, got\n%v", n, states, r)
		}
	}
}

func TestLivelockIsFoundAndShown(t *testing.T) {
	r := run(t, meet(), explore.Options{})
	c := r.Counterexample
	if c == nil || c.Kind != explore.Stuck || !reflect.DeepEqual(c.Steps, []string{"both become polite"}) || !reflect.DeepEqual(c.Then, []string{"meet"}) || !strings.Contains(c.String(), `happen next: "meet"`) {
		t.Fatalf("got\n%v", r)
	}
	if _, err := explore.Replay(meet(), append(c.Steps, c.Then...)); err != nil {
		t.Error(err)
	}
}

func TestLossyChannelNeedsARepetition(t *testing.T) {
	if r := run(t, lossy(false), explore.Options{}); !r.Complete() {
		t.Errorf("with repetitions: got\n%v", r)
	}
	r := run(t, lossy(true), explore.Options{})
	if c := r.Counterexample; c == nil || c.Kind != explore.Stuck || !reflect.DeepEqual(c.Steps, []string{"send", "lose the message"}) {
		t.Errorf("without: got\n%v", r)
	}
}

func TestResultDoesNotDependOnTheWorkers(t *testing.T) {
	var want []string
	for _, workers := range []int{1, 2, 7} {
		for i, o := range []explore.Options{{Workers: workers}, {Workers: workers, MaxStates: 2000}} {
			r := run(t, philosophers(11), o)
			r.Elapsed = 0
			if len(want) <= i {
				want = append(want, r.String())
			} else if r.String() != want[i] {
				t.Errorf("%+v: got\n%v\nwith another number of workers\n%s", o, r, want[i])
			}
		}
	}
}

func TestRunThatIsCutSaysSo(t *testing.T) {
	r := run(t, philosophers(10), explore.Options{MaxStates: 1000})
	if r.Complete() || r.Cut != "MaxStates" || r.Open == 0 || r.States < 1000 || r.States > 1020 || r.Stuck != 0 || !strings.Contains(r.String(), "states were not all taken") {
		t.Errorf("MaxStates: got\n%v", r)
	}
	r = run(t, philosophers(10), explore.Options{For: time.Nanosecond})
	if r.Complete() || r.Cut != "For" || r.Open != r.States {
		t.Errorf("For: got\n%v", r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := explore.Run(ctx, philosophers(10), explore.Options{})
	if err != nil || r.Complete() || r.Cut != "context canceled" {
		t.Errorf("context: got %v\n%v", err, r)
	}
	if r = run(t, philosophers(10), explore.Options{MaxStates: 6726}); r.Cut != "" || r.Stuck != 1 {
		t.Errorf("a limit that is just not passed: got\n%v", r)
	}
}
