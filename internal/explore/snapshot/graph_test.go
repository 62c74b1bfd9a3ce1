package snapshot_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/internal/explore/snapshot"
)

type leaf struct{ X int }

// node is a node of a graph with pointers of all sorts, also into the middle of other nodes.
type node struct {
	V      int
	Next   *node
	Kids   []*node
	Leaf   leaf
	Row    [3]leaf
	Leaves []leaf
	Window []leaf // of the Leaves or the Row of a node
	Ref    *leaf  // a leaf of a node
	Num    *int   // a number of a node
	Named  map[string]*node
	Counts map[[2]string]leaf
	Any    any
}

var nodeRules = []snapshot.Rule{snapshot.Holds("snapshot_test.node.Any", &node{}, &leaf{}, leaf{}, []leaf{}, map[string]*node{})}

// graph is what a drawn graph was made of, to change it.
type graph struct {
	r     *rand.Rand
	nodes []*node
}

// draw returns a graph that the seed determines. Its root is the first node.
func draw(seed uint64) *graph {
	g := &graph{r: rand.New(rand.NewPCG(seed, 7))}
	for i := range 1 + g.r.IntN(8) {
		g.nodes = append(g.nodes, &node{V: i, Leaf: leaf{g.r.IntN(3)}, Leaves: make([]leaf, g.r.IntN(4))})
	}
	for range 6 * len(g.nodes) {
		g.change()
	}
	return g
}

func (g *graph) node() *node { return g.nodes[g.r.IntN(len(g.nodes))] }

func (g *graph) leaf() *leaf {
	n := g.node()
	if i := g.r.IntN(8); i < 3 {
		return &n.Row[i]
	} else if i-3 < len(n.Leaves) {
		return &n.Leaves[i-3]
	}
	return &n.Leaf
}

// change makes one random change.
func (g *graph) change() {
	n, to := g.node(), g.node()
	name := string(rune('a' + g.r.IntN(4)))
	switch g.r.IntN(14) {
	case 0:
		n.V = g.r.IntN(3)
	case 1:
		n.Next = to
	case 2:
		n.Kids = append(n.Kids, to)
	case 3:
		g.leaf().X = g.r.IntN(3)
	case 4:
		from := to.Leaves
		if g.r.IntN(3) == 0 {
			from = to.Row[:]
		}
		i := g.r.IntN(len(from) + 1)
		n.Window = from[i : i+g.r.IntN(len(from)-i+1)]
	case 5:
		n.Ref = g.leaf()
	case 6:
		n.Num = &g.leaf().X
	case 7:
		n.Num = &to.V
	case 8:
		if n.Named == nil {
			n.Named = map[string]*node{}
		}
		n.Named[name] = to
	case 9:
		n.Named = to.Named
	case 10:
		if n.Counts == nil {
			n.Counts = map[[2]string]leaf{}
		}
		n.Counts[[2]string{name, "x"}] = leaf{g.r.IntN(3)}
	case 11:
		n.Any = []any{nil, to, g.leaf(), leaf{g.r.IntN(3)}, to.Window, to.Named}[g.r.IntN(6)]
	case 12:
		n.Kids = nil
	case 13:
		delete(n.Named, name)
	}
}

func checkGraph(t *testing.T, p *snapshot.Plan[node], seed uint64) {
	x, twin := draw(seed), draw(seed)
	if !same(p, x.nodes[0], twin.nodes[0]) {
		t.Fatalf("seed %d: equal graphs have other keys", seed)
	}
	before, key := dump(x.nodes[0]), string(p.Append(nil, x.nodes[0]))
	y := p.Copy(x.nodes[0])
	if got := dump(y); got != before {
		t.Fatalf("seed %d: the copy is\n%s\nof\n%s", seed, got, before)
	}
	if string(p.Append([]byte("prefix"), y)) != "prefix"+key {
		t.Fatalf("seed %d: the copy has another key", seed)
	}
	scramble(y, map[*node]bool{})
	if dump(x.nodes[0]) != before || string(p.Append(nil, x.nodes[0])) != key {
		t.Fatalf("seed %d: a change of the copy shows in the original", seed)
	}
	for range 5 {
		twin.change()
		if now := dump(twin.nodes[0]); (now == before) != same(p, twin.nodes[0], x.nodes[0]) {
			t.Fatalf("seed %d: keys are equal: %v, for\n%s\nand\n%s", seed, now != before, now, before)
		}
	}
}

// scramble changes all that a node leads to.
func scramble(n *node, seen map[*node]bool) {
	if n == nil || seen[n] {
		return
	}
	seen[n] = true
	next := append(slices.Clone(n.Kids), n.Next)
	for _, k := range n.Named {
		next = append(next, k)
	}
	if k, ok := n.Any.(*node); ok {
		next = append(next, k)
	}
	for i := range n.Kids {
		n.Kids[i] = nil
	}
	for _, l := range [][]leaf{n.Row[:], n.Leaves, n.Window} {
		for i := range l {
			l[i].X += 100
		}
	}
	n.V, n.Leaf.X = -1, -1
	if n.Num != nil {
		*n.Num = -2
	}
	if n.Ref != nil {
		n.Ref.X = -3
	}
	clear(n.Named)
	clear(n.Counts)
	if l, ok := n.Any.(*leaf); ok {
		l.X = -4
	}
	n.Next = n
	for _, k := range next {
		scramble(k, seen)
	}
}

func FuzzGraph(f *testing.F) {
	p := snapshot.Must[node](nodeRules...)
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) { checkGraph(t, p, seed) })
}
