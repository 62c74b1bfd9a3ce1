package explore

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
