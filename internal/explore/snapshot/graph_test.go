package snapshot_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

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

// dump is a text that two graphs have in common only if they have the same shape and numbers. It names each number by
// the order in which a walk comes to it, and each pointer by the number that it points to: another way than that of keys.
func dump(root *node) string {
	d := &dumper{cells: map[*int]int{}, seen: map[*int]bool{}, maps: map[unsafe.Pointer]int{}}
	d.node(root)
	for len(d.todo) > 0 {
		next := d.todo[0]
		d.todo = d.todo[1:]
		next()
	}
	return d.text.String() + d.second()
}

type dumper struct {
	text  strings.Builder
	cells map[*int]int
	order []*int
	seen  map[*int]bool          // nodes, by their first numbers
	maps  map[unsafe.Pointer]int // in the order in which they are found
	todo  []func()
	later []func() string
}

// cell returns whether a number is new.
func (d *dumper) cell(p *int) bool {
	if _, ok := d.cells[p]; ok {
		return false
	}
	d.cells[p] = len(d.order)
	d.order = append(d.order, p)
	return true
}

// point notes a pointer to a number. The name of the number is known at the end.
func (d *dumper) point(what string, p *int) {
	d.later = append(d.later, func() string { return fmt.Sprintf("%s->%d ", what, d.cells[p]) })
}

func (d *dumper) second() string {
	var b strings.Builder
	for _, f := range d.later {
		b.WriteString(f())
	}
	for _, p := range d.order {
		fmt.Fprintf(&b, "=%d ", *p)
	}
	return b.String()
}

func (d *dumper) node(n *node) {
	d.point("node", &n.V)
	if d.seen[&n.V] {
		return
	}
	d.seen[&n.V] = true
	d.todo = append(d.todo, func() { d.inside(n) })
}

func (d *dumper) leaf(l *leaf) { d.point("leaf", &l.X); d.cell(&l.X) }

func (d *dumper) leaves(what string, s []leaf) {
	fmt.Fprintf(&d.text, "%s%d ", what, len(s))
	for i := range s {
		d.leaf(&s[i])
	}
}

func (d *dumper) named(m map[string]*node) {
	fmt.Fprintf(&d.text, "map%d,%v ", len(m), m == nil)
	at := reflect.ValueOf(m).UnsafePointer()
	id, known := d.maps[at]
	if m == nil || known {
		fmt.Fprintf(&d.text, "id%d ", id)
		return
	}
	d.maps[at] = len(d.maps) + 1
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	fmt.Fprintf(&d.text, "%v ", keys)
	for _, k := range keys {
		d.node(m[k])
	}
}

func (d *dumper) inside(n *node) {
	d.cell(&n.V)
	d.leaf(&n.Leaf)
	for i := range n.Row {
		d.leaf(&n.Row[i])
	}
	d.leaves("leaves", n.Leaves)
	d.leaves("window", n.Window)
	fmt.Fprintf(&d.text, "next%v ref%v num%v kids%d ", n.Next != nil, n.Ref != nil, n.Num != nil, len(n.Kids))
	if n.Next != nil {
		d.node(n.Next)
	}
	for _, k := range n.Kids {
		d.node(k)
	}
	if n.Ref != nil {
		d.leaf(n.Ref)
	}
	if n.Num != nil {
		d.point("num", n.Num)
		d.cell(n.Num)
	}
	d.named(n.Named)
	fmt.Fprintf(&d.text, "counts%v,%v any%T ", n.Counts == nil, n.Counts, n.Any) // fmt sorts maps
	switch v := n.Any.(type) {
	case *node:
		d.node(v)
	case *leaf:
		d.leaf(v)
	case leaf:
		fmt.Fprintf(&d.text, "%d ", v.X)
	case []leaf:
		d.leaves("any", v)
	case map[string]*node:
		d.named(v)
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
