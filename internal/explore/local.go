package explore

import (
	"bytes"
	"fmt"
)

// checkLocal verifies what the Local steps of a state promise, against each other step of the state.
func (r *run[S]) checkLocal(from item[S], steps []Step[S]) *fault {
	for i, local := range steps {
		if !local.Local || local.Fault {
			continue
		}
		err := guard(func() error { return r.promised(from.state, steps, i) })
		if err != nil {
			return &fault{kind: StepWrong, state: from.number, step: i, err: fmt.Errorf("it must not be Local: %w", err)}
		}
	}
	return nil
}

func (r *run[S]) promised(from S, steps []Step[S], i int) error {
	after, err := steps[i].Do()
	if err != nil {
		return err
	}
	if before, now := r.model.Check(from), r.model.Check(after); (before == nil) != (now == nil) {
		return fmt.Errorf("makes Check say %v instead of %v", now, before)
	}
	if before, now := r.model.Reached(from), r.model.Reached(after); before != now {
		return fmt.Errorf("makes Reached %v instead of %v", now, before)
	}
	rest := r.model.Steps(after)
	for k, other := range steps {
		if k == i {
			continue
		}
		if err := r.goesAlong(steps[i], other, rest); err != nil {
			return fmt.Errorf("the step %q %w", other.Name, err)
		}
	}
	return nil
}

// goesAlong verifies that a local step and another one lead to the same state in either order, or that the other one
// leads to the same state whether or not it comes after the local one. rest are the steps after the local one.
func (r *run[S]) goesAlong(local, other Step[S], rest []Step[S]) error {
	second, err := sameStep(rest, other)
	if err != nil {
		return fmt.Errorf("is another after it: %w", err)
	}
	first, errFirst := other.Do()
	end, errSecond := second.Do()
	switch {
	case (errFirst == nil) != (errSecond == nil):
		return fmt.Errorf("has the error %v before it and %v after it", errFirst, errSecond)
	case errFirst != nil:
		return nil
	}
	key := r.model.Key(end, nil)
	if bytes.Equal(key, r.model.Key(first, nil)) {
		return nil
	}
	again, err := sameStep(r.model.Steps(first), local)
	if err != nil {
		return fmt.Errorf("changes it: %w%s", err, differ(r.model, first, end))
	}
	last, err := again.Do()
	if err != nil {
		return fmt.Errorf("lets it fail: %w", err)
	}
	if !bytes.Equal(key, r.model.Key(last, nil)) {
		return fmt.Errorf("leads to another state if it comes first%s", differ(r.model, last, end))
	}
	return nil
}

// sameStep returns the step of the name, which must still be Local if it was, and a fault only if it was.
func sameStep[S any](steps []Step[S], as Step[S]) (Step[S], error) {
	step, err := named(steps, as.Name)
	if err == nil && (as.Local && !step.Local || step.Fault != as.Fault) {
		err = fmt.Errorf("it has Local %v and Fault %v, and had Local %v and Fault %v", step.Local, step.Fault, as.Local, as.Fault)
	}
	return step, err
}

// differ describes the states after another step that came first, and after one that came second.
func differ[S any](model Model[S], first, second S) string {
	if x, y := describe(model, first), describe(model, second); x != "" || y != "" {
		return fmt.Sprintf("\nif it comes first:\n%s\nif it comes second:\n%s", x, y)
	}
	return ""
}
