package explore_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/explore"
)

// toy is a world of comparable states. steps calls add for each step of a state.
type toy[S comparable] struct {
	starts  []S
	steps   func(s S, add func(name string, to S, mark ...mark))
	check   func(S) error
	reached func(S) bool
}

type mark int

const fault mark = 0

func (t toy[S]) Start() []S { return t.starts }

func (t toy[S]) Steps(s S) (steps []explore.Step[S]) {
	t.steps(s, func(name string, to S, marks ...mark) {
		step := explore.Step[S]{Name: name, Do: func() (S, error) { return to, nil }}
		for _, m := range marks {
			step.Fault = step.Fault || m == fault
		}
		steps = append(steps, step)
	})
	return steps
}

func (t toy[S]) Key(s S, to []byte) []byte { return fmt.Appendf(to, "%v", s) }

func (t toy[S]) Check(s S) error {
	if t.check == nil {
		return nil
	}
	return t.check(s)
}

func (t toy[S]) Reached(s S) bool { return t.reached == nil || t.reached(s) }

func (t toy[S]) Describe(s S) string {
	text, err := json.Marshal(s)
	return fmt.Sprintf("%s%v", text, map[bool]any{true: "", false: err}[err == nil])
}

// lock is Peterson's lock of two processes.
type lock struct {
	At   [2]int // 0: at rest, 1: has raised its flag, 2: waits, 3: is inside
	Flag [2]bool
	Turn int
}

// peterson is right if each process raises its flag before it gives the turn away. hasty: they do it the other way
// round, which is wrong.
func peterson(hasty bool) toy[lock] {
	return toy[lock]{
		starts: []lock{{}},
		steps: func(s lock, add func(string, lock, ...mark)) {
			for i := range 2 {
				to := s
				to.At[i] = (s.At[i] + 1) % 4
				switch s.At[i] {
				case 0, 1:
					if (s.At[i] == 0) != hasty {
						to.Flag[i] = true
						add(fmt.Sprintf("%d raises its flag", i), to)
					} else {
						to.Turn = 1 - i
						add(fmt.Sprintf("%d gives the turn away", i), to)
					}
				case 2:
					if !s.Flag[1-i] || s.Turn == i {
						add(fmt.Sprintf("%d enters", i), to)
					}
				case 3:
					to.Flag[i] = false
					add(fmt.Sprintf("%d leaves", i), to)
				}
			}
		},
		check: func(s lock) error {
			if s.At == [2]int{3, 3} {
				return errors.New("both are inside")
			}
			return nil
		},
		reached: func(s lock) bool { return s.At[0] == 3 },
	}
}

// philosophers dine: each takes the fork on its left, then the one on its right, and puts both down. The state has a
// letter for each: thinking, left, eating.
func philosophers(n int) toy[string] {
	set := func(s string, i int, letter string) string { return s[:i] + letter + s[i+1:] }
	return toy[string]{
		starts: []string{strings.Repeat("t", n)},
		steps: func(s string, add func(string, string, ...mark)) {
			for i := range n {
				switch before, after := s[(i+n-1)%n], s[(i+1)%n]; {
				case s[i] == 't' && before != 'e':
					add(fmt.Sprintf("%d takes left", i), set(s, i, "l"))
				case s[i] == 'l' && after == 't':
					add(fmt.Sprintf("%d takes right", i), set(s, i, "e"))
				case s[i] == 'e':
					add(fmt.Sprintf("%d puts down", i), set(s, i, "t"))
				}
			}
		},
		reached: func(s string) bool { return strings.Contains(s, "e") },
	}
}

// channel loses messages. A sender sends numbers up to 2, each until it is acknowledged. patient: it does not send again.
type channel struct {
	Sent, Got int
	Sending   bool
	Message   int // 0: none
	Ack       int
}

func lossy(patient bool) toy[channel] {
	return toy[channel]{
		starts: []channel{{}},
		steps: func(s channel, add func(string, channel, ...mark)) {
			if s.Sent < 2 && !s.Sending {
				to := s
				to.Sent, to.Sending, to.Message = s.Sent+1, true, s.Sent+1
				add("send", to)
			}
			if s.Sending && !patient {
				to := s
				to.Message = s.Sent
				add("send again", to)
			}
			if s.Message > 0 {
				to := s
				to.Message = 0
				add("lose the message", to, fault)
				to.Got, to.Ack = s.Message, s.Message
				add("receive", to)
			}
			if s.Ack > 0 {
				to := s
				to.Ack = 0
				add("lose the answer", to, fault)
				to.Sending = s.Sending && s.Ack != s.Sent
				add("take the answer", to)
			}
		},
		check: func(s channel) error {
			if s.Got > s.Sent || s.Got < s.Sent-1 {
				return fmt.Errorf("got %d, sent %d", s.Got, s.Sent)
			}
			return nil
		},
		reached: func(s channel) bool { return s.Got == 2 && !s.Sending },
	}
}

// corridor has two people who step aside for each other at the same time, for ever, once both are polite.
type corridor struct {
	Side   [2]int
	Polite bool
	Met    bool
	Passed bool
	Moved  int // who stepped aside last
}

func meet() toy[corridor] {
	return toy[corridor]{
		starts: []corridor{{Moved: 1}},
		steps: func(s corridor, add func(string, corridor, ...mark)) {
			if s.Passed {
				return
			}
			if !s.Polite {
				to := s
				to.Polite = true
				add("both become polite", to, fault)
				to = s
				to.Passed = true
				add("push through", to)
			}
			if !s.Met {
				to := s
				to.Met = true
				add("meet", to)
				return
			}
			to := s
			to.Moved = 1 - s.Moved
			to.Side[to.Moved] = 1 - s.Side[to.Moved]
			add(fmt.Sprintf("%d steps aside", to.Moved), to)
		},
		reached: func(s corridor) bool { return s.Passed },
	}
}
