package explore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/internal/explore"
)

// pair is a state of two parts that do not touch each other. Only the first can be wrong or reached.
type pair struct{ Seen, Hidden int }

// drawn returns a world with parts of random steps. The steps of the hidden part are Local, also those in circles, and
// some steps of the part that is seen forget the hidden part.
func drawn(seed uint64) toy[pair] {
	r := rand.New(rand.NewPCG(seed, 1))
	const seen, hidden = 12, 4
	type edge struct {
		to      int
		fault   bool
		forgets bool
	}
	var edges [seen][]edge
	for i := range edges {
		for range 1 + r.IntN(3) {
			edges[i] = append(edges[i], edge{r.IntN(seen), r.IntN(4) == 0, r.IntN(8) == 0})
		}
	}
	var next [hidden]int // itself: no step
	for i := range next {
		next[i] = r.IntN(hidden)
	}
	wrong, reached := r.IntN(2*seen), r.IntN(seen)
	return toy[pair]{
		starts: []pair{{}},
		steps: func(s pair, add func(string, pair, ...mark)) {
			for i, e := range edges[s.Seen] {
				to := pair{e.to, s.Hidden}
				name := fmt.Sprintf("%d to %d by %d", s.Seen, e.to, i)
				if e.forgets {
					to.Hidden = 0
				}
				if e.fault {
					add(name, to, fault)
				} else {
					add(name, to)
				}
			}
			if to := next[s.Hidden]; to != s.Hidden {
				add("hidden", pair{s.Seen, to}, local)
			}
		},
		check: func(s pair) error {
			if s.Seen == wrong {
				return errors.New("wrong")
			}
			return nil
		},
		reached: func(s pair) bool { return s.Seen == reached },
	}
}

func TestReductionFindsTheSameWithFewerStates(t *testing.T) {
	kinds := map[explore.Kind]int{}
	saved := 0
	for seed := range uint64(600) {
		full, reduced := run(t, drawn(seed), explore.Options{Full: true}), run(t, drawn(seed), explore.Options{})
		if full.Alone != 0 || full.Complete() && reduced.States > full.States {
			t.Errorf("seed %d: full\n%v\nreduced\n%v", seed, full, reduced)
		}
		if full.Complete() {
			saved += full.States - reduced.States
		}
		a, b := full.Counterexample, reduced.Counterexample
		if (a == nil) != (b == nil) || a != nil && a.Kind != b.Kind {
			t.Errorf("seed %d: full\n%v\nreduced\n%v", seed, full, reduced)
		}
		if a != nil {
			kinds[a.Kind]++
		} else {
			kinds[""]++
		}
	}
	if saved < 100 || kinds[""] < 40 || kinds[explore.StateWrong] < 100 || kinds[explore.Stuck] < 100 {
		t.Errorf("the worlds say too little: %d states saved, kinds %v", saved, kinds)
	}
}

func TestCheckLocalAcceptsAStepThatIsForgotten(t *testing.T) {
	for seed := range uint64(100) {
		r := run(t, drawn(seed), explore.Options{CheckLocal: true})
		if c := r.Counterexample; c != nil && c.Kind == explore.StepWrong {
			t.Errorf("seed %d: got\n%v", seed, r)
		}
	}
}

func TestCheckLocalFindsBrokenPromises(t *testing.T) {
	type state struct{ A, B int }
	world := func(steps func(s state, add func(string, state, ...mark))) toy[state] {
		return toy[state]{starts: []state{{}}, steps: steps}
	}
	for name, c := range map[string]struct {
		world toy[state]
		want  string
	}{
		"prevented": {world(func(s state, add func(string, state, ...mark)) {
			if s == (state{}) {
				add("mine", state{1, 0}, local)
				add("other", state{0, 1})
			} else if s == (state{1, 0}) {
				add("other", state{1, 1})
			}
		}), `"other" changes it`},
		"prevents": {world(func(s state, add func(string, state, ...mark)) {
			if s == (state{}) {
				add("mine", state{1, 0}, local)
				add("other", state{0, 1})
			}
		}), `"other" is another after it`},
		"order counts": {world(func(s state, add func(string, state, ...mark)) {
			if s.A < 3 {
				add("mine", state{s.A + 1, s.B}, local)
			}
			if s.B < 3 {
				add("other", state{s.A * 2 % 3, s.B + 1})
			}
		}), `"other" leads to another state`},
		"seen by Reached": {func() toy[state] {
			w := world(func(s state, add func(string, state, ...mark)) {
				if s.A == 0 {
					add("mine", state{1, s.B}, local)
				}
			})
			w.reached = func(s state) bool { return s.A == 1 }
			return w
		}(), "makes Reached true instead of false"},
		"seen by Check": {func() toy[state] {
			w := world(func(s state, add func(string, state, ...mark)) {
				if s.A == 0 {
					add("mine", state{1, s.B}, local)
				}
			})
			w.check = func(s state) error {
				if s.A == 1 {
					return errors.New("1")
				}
				return nil
			}
			return w
		}(), "makes Check say 1 instead of <nil>"},
	} {
		r := run(t, c.world, explore.Options{CheckLocal: true})
		if x := r.Counterexample; x == nil || x.Kind != explore.StepWrong || !strings.Contains(x.Err.Error(), c.want) {
			t.Errorf("%s: want %s, got\n%v", name, c.want, r)
		}
	}
}

func TestLocalFaultIsNeverTakenAlone(t *testing.T) {
	world := toy[pair]{starts: []pair{{}}, reached: func(s pair) bool { return s.Seen == 1 },
		steps: func(s pair, add func(string, pair, ...mark)) {
			if s.Hidden == 0 {
				add("break", pair{s.Seen, 1}, local, fault)
			}
			if s.Seen == 0 {
				add("go", pair{1, s.Hidden})
			}
		}}
	if r := run(t, world, explore.Options{}); !r.Complete() || r.States != 4 || r.Alone != 0 {
		t.Errorf("got\n%v", r)
	}
}
