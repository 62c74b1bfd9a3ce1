package explore

import (
	"fmt"
	"math"
	"runtime/debug"
)

// expansion is what the steps of a state lead to.
type expansion[S any] struct {
	successors []successor[S]
	fault      *fault
}

type successor[S any] struct {
	hash   hash
	number uint32 // none: it had none when the batch began
	step   int
	fault  bool
	state  S
}

// expand takes the steps of a state.
func (r *run[S]) expand(worker int, from item[S], x *expansion[S]) {
	x.successors, x.fault = x.successors[:0], nil
	steps, f := r.stepsOf(from)
	if x.fault = f; f != nil {
		return
	}
	for i, step := range steps {
		y, f := r.take(worker, from, i, step)
		if x.fault = f; f != nil {
			return
		}
		x.successors = append(x.successors, y)
	}
}

func (r *run[S]) stepsOf(from item[S]) (steps []Step[S], f *fault) {
	err := guard(func() error {
		steps = r.model.Steps(from.state)
		if len(steps) > math.MaxUint16 {
			return fmt.Errorf("the state has %d steps: Run supports at most %d", len(steps), math.MaxUint16)
		}
		return nil
	})
	if err != nil {
		return nil, &fault{kind: StateWrong, state: from.number, step: -1, err: err}
	}
	return steps, nil
}

// take takes a step of a state.
func (r *run[S]) take(worker int, from item[S], i int, step Step[S]) (successor[S], *fault) {
	y := successor[S]{step: i, fault: step.Fault}
	err := guard(func() (err error) {
		if y.state, err = step.Do(); err != nil {
			return err
		}
		key := r.model.Key(y.state, r.keys[worker][:0])
		r.keys[worker] = key
		y.hash = hashOf(key)
		return nil
	})
	if err != nil {
		return y, &fault{kind: StepWrong, state: from.number, step: i, err: err}
	}
	if y.number = r.table.find(y.hash); y.number != none {
		var zero S
		y.state = zero
	}
	return y, nil
}

// guard calls f. A panic becomes an error that says where.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}
