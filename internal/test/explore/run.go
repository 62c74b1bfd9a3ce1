package explore

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Options say how far Run goes. The zero value goes through all states.
type Options struct {
	// MaxStates ends the run after the state whose steps lead beyond so many states. 0: no limit, other than memory:
	// 10^7 states with 6 steps each take about 1 GB, besides the states of the two levels that Run works on.
	MaxStates int
	// For ends the run after this time. 0: no limit. What such a run finds depends on the machine.
	For time.Duration
	// Workers is how many goroutines call the model. 0: GOMAXPROCS. Nothing in the report depends on it but times.
	Workers int
	// Progress gets a line every 5 seconds. nil: none.
	Progress io.Writer
}

// Run goes through the states of a world, breadth first, until it finds a fault or has seen all states, or until the
// options or ctx end it. It reports the same numbers and the same counterexample each time, unless time or ctx has ended
// it. It blocks until all its goroutines have ended.
//
// An error means that the model breaks its contract, for example is not deterministic. A fault of the world is not an
// error but Report.Counterexample.
func Run[S any](ctx context.Context, model Model[S], o Options) (*Report, error) {
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	r := &run[S]{model: model, options: o, table: newTable(), began: time.Now(), keys: make([][]byte, o.Workers)}
	r.printed = r.began
	if err := r.begin(); err != nil {
		return nil, err
	}
	for len(r.level) > 0 && r.fault == nil && r.cut == "" {
		r.largest = max(r.largest, len(r.level))
		r.doLevel(ctx)
	}
	report := r.report()
	if r.fault == nil {
		r.seekStuck(report)
	}
	var err error
	if r.fault != nil {
		report.Counterexample, err = r.explain(r.fault)
	}
	report.Elapsed = time.Since(r.began)
	return report, err
}

// batchSize is how many states are worked on before their successors are numbered. It is a constant because the numbers
// of the states depend on it.
const batchSize = 1024

// run is one run of Run.
type run[S any] struct {
	model   Model[S]
	options Options

	table    *table
	reached  pages[bool]   // by number: Reached
	degrees  pages[uint16] // by number, of expanded states: how many of edges are theirs
	edges    pages[uint32] // successors by steps that are no faults, without the state itself
	expanded int           // states from 0 whose successors are all known

	level, next []item[S]
	batch       [batchSize]expansion[S]
	keys        [][]byte // by worker
	depth       int      // of level
	largest     int
	steps       int
	fault       *fault // the first
	cut         string // why the run ends before its time
	began       time.Time
	printed     time.Time
}

// item is a state whose steps have not been taken.
type item[S any] struct {
	number uint32
	state  S
}

// fault is where something is wrong.
type fault struct {
	kind  Kind
	state uint32
	step  int // that fails in the state; -1: the state itself is wrong
	err   error
}

var errNoStart = errors.New("the model has no state to start in: Start must return at least one")

func (r *run[S]) begin() error {
	starts := r.model.Start()
	if len(starts) == 0 {
		return errNoStart
	}
	for i, s := range starts {
		key := r.model.Key(s, r.keys[0][:0])
		r.keys[0] = key
		if h := hashOf(key); r.table.find(h) == none {
			r.next = append(r.next, item[S]{r.table.add(h, none, i), s})
		}
	}
	r.look(r.next)
	r.level, r.next = r.next, nil
	return nil
}

// doLevel takes the steps of all states of the level.
func (r *run[S]) doLevel(ctx context.Context) {
	for done := 0; done < len(r.level) && r.fault == nil; {
		if r.cut = r.ends(ctx); r.cut != "" {
			return
		}
		batch := r.level[done:min(done+batchSize, len(r.level))]
		r.parallel(len(batch), func(worker, i int) { r.expand(worker, batch[i], &r.batch[i]) })
		before := len(r.next)
		r.merge(batch)
		r.look(r.next[before:])
		clear(batch) // frees the states
		done += len(batch)
		r.print()
		if r.cut != "" {
			return
		}
	}
	if r.fault == nil {
		r.level, r.next = r.next, r.level[:0]
		if len(r.level) > 0 {
			r.depth++
		}
	}
}

// merge numbers the successors of a batch, in the order of the states and of their steps.
func (r *run[S]) merge(batch []item[S]) {
	for i := range batch {
		x := &r.batch[i]
		if x.fault != nil {
			r.fault = x.fault
			return
		}
		r.steps += len(x.successors)
		degree := 0
		first := r.edges.len
		for k := range x.successors {
			y := &x.successors[k]
			if y.number == none {
				y.number = r.table.find(y.hash) // another state of the batch may have led to it
			}
			if y.number == none {
				y.number = r.table.add(y.hash, batch[i].number, y.step)
				r.next = append(r.next, item[S]{y.number, y.state})
			}
			if !y.fault && y.number != batch[i].number && !r.hasEdge(first, y.number) {
				r.edges.append(y.number)
				degree++
			}
		}
		clear(x.successors)
		r.degrees.append(uint16(degree))
		r.expanded++
		if r.options.MaxStates > 0 && r.table.len() > r.options.MaxStates {
			r.cut = "MaxStates"
			return
		}
	}
}

func (r *run[S]) hasEdge(from int, to uint32) bool {
	for i := from; i < r.edges.len; i++ {
		if r.edges.at(i) == to {
			return true
		}
	}
	return false
}

// look calls Check and Reached for new states.
func (r *run[S]) look(states []item[S]) {
	type finding struct {
		reached bool
		err     error
	}
	found := make([]finding, len(states))
	r.parallel(len(states), func(_, i int) {
		f := &found[i]
		f.err = guard(func() (err error) {
			f.reached = r.model.Reached(states[i].state)
			return r.model.Check(states[i].state)
		})
	})
	wrong := false
	for i, f := range found {
		r.reached.append(f.reached)
		if f.err != nil && !wrong && (r.fault == nil || r.fault.step >= 0) {
			wrong = true
			r.fault = &fault{kind: StateWrong, state: states[i].number, step: -1, err: f.err}
		}
	}
}

// parallel calls f for 0 to n-1 on all workers.
func (r *run[S]) parallel(n int, f func(worker, i int)) {
	var next atomic.Int64
	work := func(worker int) {
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			f(worker, i)
		}
	}
	var done sync.WaitGroup
	for w := 1; w < min(r.options.Workers, n); w++ {
		done.Go(func() { work(w) })
	}
	work(0)
	done.Wait()
}

// ends returns why the run has to end, or "".
func (r *run[S]) ends(ctx context.Context) string {
	if ctx.Err() != nil {
		return context.Cause(ctx).Error()
	}
	if r.options.For > 0 && time.Since(r.began) >= r.options.For {
		return "For"
	}
	return ""
}
