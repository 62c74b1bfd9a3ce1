package volume_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// script chooses what happens in a model: by its choices first. In the passes that follow nothing
// goes wrong. Then it ends.
type script struct {
	choices []int
	passes  int // that follow

	follow  bool // the choices have been made
	guarded bool // the model has the finalizer when they have

	// Where it has ended: in which state, and how many choices there are.
	state   string
	options int

	told    []string
	effects map[volume.EffectKind]bool // that have begun
	failure string
}

// stop ends a script.
type stop struct{}

// choose returns one of n choices at some point; 0 is what happens if nothing goes wrong.
func (s *script) choose(m *runModel, where string, n int) int {
	if len(s.choices) > 0 {
		c := s.choices[0]
		s.choices = s.choices[1:]
		return c
	}
	if !s.follow {
		s.follow, s.guarded = true, m.hasFinalizer()
	}
	if s.passes > 0 || s.passes == 0 && where != between && s.state == inPass {
		if where == between {
			s.state = inPass
			s.passes--
		}
		return 0
	}
	s.state, s.options = where+" "+m.key(), n
	panic(stop{})
}

const (
	between = "between runs"
	inPass  = "in a run"
)

func (s *script) begun(k volume.EffectKind) { s.effects[k] = true }

func (s *script) log(format string, args ...any) {
	s.told = append(s.told, fmt.Sprintf(format, args...))
}

func (s *script) fail(format string, args ...any) {
	s.failure = fmt.Sprintf(format, args...)
	panic(stop{})
}

// play calls f, which the script may stop.
func (s *script) play(f func()) {
	defer func() {
		if r := recover(); r != nil && r != any(stop{}) {
			panic(r)
		}
	}()
	f()
}

// explore plays all scripts in which at most a number of things go wrong or happen between runs, up
// to states that were seen before. From each state two passes follow in which nothing goes wrong.
func explore(t *testing.T, trouble int, edit func(*runModel)) {
	t.Helper()
	seen, effects := map[string]bool{}, map[volume.EffectKind]bool{}
	play := func(s *script, then func(*runModel)) {
		var m *runModel
		s.play(func() { m = newRunModel(s, edit); m.run() })
		if s.failure == "" && then != nil {
			s.play(func() { then(m) })
		}
		if s.failure != "" {
			t.Fatalf("%s, after:\n%s", s.failure, strings.Join(s.told, "\n"))
		}
	}
	todo := [][]int{nil}
	for range trouble + 1 {
		var next [][]int // with one trouble more
		for len(todo) > 0 {
			path := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			s := &script{choices: path, effects: effects}
			play(s, nil)
			if s.options == 0 || seen[s.state] {
				continue
			}
			seen[s.state] = true
			if strings.HasPrefix(s.state, between) {
				end := &script{choices: path, passes: 2, effects: effects}
				play(end, func(m *runModel) { m.checkEnd(end.guarded) })
			}
			for i := range s.options {
				longer := append(slices.Clone(path), i)
				if i == 0 {
					todo = append(todo, longer)
				} else {
					next = append(next, longer)
				}
			}
		}
		todo = next
	}
	for kind := volume.FindOwners; kind <= volume.LookAgain; kind++ {
		if !effects[kind] {
			t.Errorf("in none of %d states %s comes next", len(seen), effectName(kind))
		}
	}
}

// Whatever goes wrong at whatever step, also more than once, with a process that ends anywhere, a node
// that comes back under another ID, and a VolumeAttachment that vanishes.
func TestNoSequenceOfOutcomesLosesAVolumeOrCallsForNothing(t *testing.T) {
	for name, edit := range map[string]func(*runModel){
		"alone":                               nil,
		"with the finalizer of somebody else": func(m *runModel) { m.va.Finalizers = []string{"example.com/other"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			explore(t, 6, edit)
		})
	}
}
