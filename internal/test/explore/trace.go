package explore

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Kind is what is wrong at the end of a trace.
type Kind string

const (
	StateWrong Kind = "wrong state" // Check fails
	StepWrong  Kind = "wrong step"  // Step.Do fails
	Stuck      Kind = "stuck"       // no steps without faults lead to a state with Reached
)

// Counterexample is a shortest way to a fault.
type Counterexample struct {
	Kind Kind
	// Steps are the names of the steps, from the start to the fault: what Replay takes. A wrong step is the last of
	// them. In a world with several starts, the first name is that of the start.
	Steps []string
	// Err is what Check or Step.Do has returned. It is nil if Kind is Stuck.
	Err error
	// Then are the steps that are no faults in a state that is stuck.
	Then []string
	// State is the description of the last state, if the model is a Describer.
	State string
}

// Describer may be implemented by a Model. What it says about a state is printed at the end of a trace.
type Describer[S any] interface {
	Describe(S) string
}

// String returns the trace, one numbered line for each step, with what is wrong after it.
func (c *Counterexample) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s after %s:\n", c.Kind, counted(len(c.Steps), "step"))
	for i, name := range c.Steps {
		fmt.Fprintf(&b, "%4d  %s\n", i+1, name)
	}
	if c.Kind == Stuck {
		fmt.Fprintf(&b, "Without a further fault nothing that is wanted can be reached any more. All that can happen next: %s\n", quoted(c.Then))
	} else {
		fmt.Fprintf(&b, "error: %v\n", c.Err)
	}
	if c.State != "" {
		fmt.Fprintf(&b, "state:\n%s\n", strings.TrimRight(c.State, "\n"))
	}
	return b.String()
}

// explain makes the trace of a fault.
func (r *run[S]) explain(f *fault) (*Counterexample, error) {
	c := &Counterexample{Kind: f.kind, Err: f.err}
	s, err := r.lead(f, c)
	if err != nil {
		return c, err
	}
	if f.kind == Stuck {
		for _, step := range r.model.Steps(s) {
			if !step.Fault {
				c.Then = append(c.Then, step.Name)
			}
		}
	}
	c.State = describe(r.model, s)
	return c, nil
}

// lead takes the steps that lead to a fault once more. It returns the last state before a wrong step.
func (r *run[S]) lead(f *fault, c *Counterexample) (s S, err error) {
	start, steps := r.table.way(f.state)
	starts := r.model.Start()
	s = starts[start]
	if len(starts) > 1 {
		c.Steps = append(c.Steps, startName(start))
	}
	if f.step >= 0 {
		steps = append(steps, f.step)
	}
	for i, index := range steps {
		all := r.model.Steps(s)
		if index >= len(all) {
			return s, fmt.Errorf("the model is not deterministic: after %d steps a state has %d steps and had more before:\n%s", i, len(all), c)
		}
		c.Steps = append(c.Steps, all[index].Name)
		if f.step >= 0 && i == len(steps)-1 {
			return s, nil
		}
		if s, err = all[index].Do(); err != nil {
			return s, fmt.Errorf("the model is not deterministic: a step fails only when it is taken again: %w\n%s", err, c)
		}
	}
	if h := hashOf(r.model.Key(s, nil)); h != r.table.hashes.at(int(f.state)) {
		return s, fmt.Errorf("the model is not deterministic: the same steps led to another state before:\n%s", c)
	}
	return s, nil
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func startName(i int) string { return "start " + strconv.Itoa(i) }

func describe[S any](model Model[S], s S) string {
	if d, ok := model.(Describer[S]); ok {
		return d.Describe(s)
	}
	return ""
}

// Replay takes steps by their names, from the start of a world, and calls Check in each state. It returns the last
// state. An error says which step fails, in which state Check fails, or which step does not exist and which steps do.
func Replay[S any](model Model[S], names []string) (s S, err error) {
	starts := model.Start()
	if len(starts) == 0 {
		return s, errNoStart
	}
	s = starts[0]
	if err := model.Check(s); err != nil {
		return s, fmt.Errorf("the start is wrong: %w", err)
	}
	steps := model.Steps(s)
	if len(starts) > 1 {
		steps = nil
		for i, start := range starts {
			steps = append(steps, Step[S]{Name: startName(i), Do: func() (S, error) { return start, nil }})
		}
	}
	for i, name := range names {
		step, err := named(steps, name)
		if err != nil {
			return s, fmt.Errorf("step %d %q: %w%s", i+1, name, err, stateText(model, s))
		}
		to, err := step.Do()
		if err != nil {
			return s, fmt.Errorf("step %d %q fails: %w%s", i+1, name, err, stateText(model, s))
		}
		s = to
		if err := model.Check(s); err != nil {
			return s, fmt.Errorf("the state after step %d %q is wrong: %w%s", i+1, name, err, stateText(model, s))
		}
		steps = model.Steps(s)
	}
	return s, nil
}

func stateText[S any](model Model[S], s S) string {
	if text := describe(model, s); text != "" {
		return "\nstate:\n" + text
	}
	return ""
}

// named returns the step with a name.
func named[S any](steps []Step[S], name string) (found Step[S], err error) {
	n := 0
	var known []string
	for _, step := range steps {
		known = append(known, step.Name)
		if step.Name == name {
			found = step
			n++
		}
	}
	switch {
	case n == 1:
		return found, nil
	case n > 1:
		return found, fmt.Errorf("%d steps of the state have this name: Steps must give each another", n)
	case len(known) == 0:
		return found, errors.New("no step exists in this state: nothing can happen in it")
	}
	return found, fmt.Errorf("no such step exists in this state; its steps are %s", quoted(known))
}

func quoted(names []string) string {
	var all []string
	for _, name := range names {
		all = append(all, strconv.Quote(name))
	}
	return strings.Join(all, ", ")
}
