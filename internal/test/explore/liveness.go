package explore

import "slices"

// seekStuck looks for a state from which no steps without faults lead to a state with Reached. A state whose steps were
// not all taken counts as one that has such a way.
func (r *run[S]) seekStuck(report *Report) {
	n := r.table.len()
	into := r.backwards(n)
	live := make([]bool, n) // a way is known
	var todo []uint32
	for i := range n {
		if r.reached.at(i) || i >= r.expanded {
			live[i] = true
			todo = append(todo, uint32(i))
		}
	}
	for len(todo) > 0 {
		last := len(todo) - 1
		to := todo[last]
		todo = todo[:last]
		for _, from := range into.of(to) {
			if !live[from] {
				live[from] = true
				todo = append(todo, from)
			}
		}
	}
	for i, ok := range live {
		if ok {
			continue
		}
		if report.Stuck++; r.fault == nil {
			r.fault = &fault{kind: Stuck, state: uint32(i), step: -1}
		}
	}
}

// graph has the edges from each node, or into it: those of node n are ends[starts[n]:starts[n+1]].
type graph struct {
	starts []uint64
	ends   []uint32
}

func (g graph) of(n uint32) []uint32 { return g.ends[g.starts[n]:g.starts[n+1]] }

// backwards returns the edges into each state.
func (r *run[S]) backwards(n int) graph {
	g := graph{starts: make([]uint64, n+1), ends: make([]uint32, r.edges.len)}
	for i := range r.edges.len {
		g.starts[r.edges.at(i)]++
	}
	sum := uint64(0)
	for i, count := range g.starts {
		sum += count
		g.starts[i] = sum // the end of its edges: each edge that is filled in moves it to the left
	}
	edge := r.edges.len
	for from := r.expanded - 1; from >= 0; from-- {
		for range r.degrees.at(from) {
			edge--
			to := r.edges.at(edge)
			g.starts[to]--
			g.ends[g.starts[to]] = uint32(from)
		}
	}
	return g
}

// trap returns how many states the steps without faults lead to from a state that is stuck, itself included.
func (r *run[S]) trap(from uint32) int {
	starts := make([]uint64, r.expanded+1)
	for i := range r.expanded {
		starts[i+1] = starts[i] + uint64(r.degrees.at(i))
	}
	seen := map[uint32]bool{from: true}
	for todo := []uint32{from}; len(todo) > 0; {
		last := len(todo) - 1
		n := todo[last]
		todo = todo[:last]
		for i := starts[n]; i < starts[n+1]; i++ {
			if to := r.edges.at(int(i)); !seen[to] {
				seen[to] = true
				todo = append(todo, to)
			}
		}
	}
	return len(seen)
}

// trapSteps is how many steps a trace goes on in the trap.
const trapSteps = 12

// inTrap returns the steps with which a trace goes on from a state that is stuck: each time the first step without a
// fault that leads to a state that is new to the trace. It ends with a note on why it ends.
func (r *run[S]) inTrap(s S) (names []string, end S, note string) {
	seen := []hash{hashOf(r.model.Key(s, nil))}
	for len(names) < trapSteps {
		var known []string
		moved := false
		for _, step := range r.model.Steps(s) {
			if step.Fault {
				continue
			}
			to, err := step.Do()
			if err != nil {
				return names, s, "the next step fails: " + step.Name + ": " + err.Error()
			}
			if h := hashOf(r.model.Key(to, nil)); slices.Contains(seen, h) {
				known = append(known, step.Name)
			} else {
				names, s, seen, moved = append(names, step.Name), to, append(seen, h), true
				break
			}
		}
		switch {
		case moved:
		case len(known) == 0:
			return names, s, "nothing more can happen"
		default:
			return names, s, "all that can happen leads back: " + quoted(known)
		}
	}
	return names, s, "and so on"
}
