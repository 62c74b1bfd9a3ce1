package snapshot_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unsafe"
)

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
