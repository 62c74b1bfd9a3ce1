package snapshot

import (
	"fmt"
	"reflect"
	"time"
)

// Plan makes keys of values of a type. It is safe for concurrent use, also on the same value.
type Plan[T any] struct{ root *node }

// Of makes a plan for a type. An error names all fields that need a rule, and all rules that apply to nothing.
func Of[T any](list ...Rule) (*Plan[T], error) {
	t := reflect.TypeFor[T]()
	c := &compiler{rules: rules{list: list, reached: map[string]bool{}}, byType: map[reflect.Type]*node{}, pointed: map[reflect.Type]bool{t: true}}
	c.rules.reach(t)
	root := c.node(t, nil, "", t.String())
	for _, n := range c.all {
		n.pointed = c.pointed[n.typ]
	}
	if errs := append(c.errs, c.rules.unused()...); len(errs) > 0 {
		return nil, fmt.Errorf("no snapshot plan for %v:\n\t%s", t, joined(errs))
	}
	return &Plan[T]{root}, nil
}

// Must is Of for rules that are known to fit. It panics if they do not.
func Must[T any](list ...Rule) *Plan[T] {
	p, err := Of[T](list...)
	if err != nil {
		panic(err)
	}
	return p
}

// node says how values of a type, or of a field, are keyed.
type node struct {
	treatment
	typ       reflect.Type
	path      string
	pointed   bool    // pointers lead to values of the type
	fields    []*node // of a struct; nil: left out
	key, elem *node
}

// compiler makes the nodes of all types that a type leads to.
type compiler struct {
	rules   rules
	byType  map[reflect.Type]*node
	all     []*node
	pointed map[reflect.Type]bool
	errs    []string
}

var timeType = reflect.TypeFor[time.Time]()

// node returns the node of a type, or of a field of another. The path is one of fields that leads to it.
func (c *compiler) node(t, owner reflect.Type, field, path string) *node {
	tr, own := c.rules.treatment(t, owner, field)
	if n := c.byType[t]; n != nil && !own {
		return n
	}
	n := &node{treatment: tr, typ: t, path: path}
	c.all = append(c.all, n)
	if !own {
		c.byType[t] = n
	}
	if tr.mode == share && t.Kind() != reflect.Func && t.Kind() != reflect.Chan && t.Kind() != reflect.Pointer && t.Kind() != reflect.Interface {
		n.mode = deep
	}
	isInt := t.Kind() >= reflect.Int && t.Kind() <= reflect.Uintptr
	switch {
	case tr.mode == rank && !isInt && t.Kind() != reflect.String, tr.mode == saturate && !isInt:
		c.fail(n, "Rank takes integers and strings, and Saturate integers")
	case n.mode == share && t.Kind() == reflect.Pointer:
		n.elem = c.node(t.Elem(), nil, "", path)
	case n.mode == deep:
		c.parts(n)
	}
	return n
}

func (c *compiler) fail(n *node, text string) {
	c.errs = append(c.errs, fmt.Sprintf("%s (%v): %s", n.path, n.typ, text))
}

// parts makes the nodes of what a value has and leads to.
func (c *compiler) parts(n *node) {
	switch t := n.typ; t.Kind() {
	case reflect.Pointer:
		c.pointed[t.Elem()] = true
		n.elem = c.node(t.Elem(), nil, "", n.path)
	case reflect.Slice, reflect.Array:
		n.elem = c.node(t.Elem(), nil, "", n.path+"[]")
	case reflect.Map:
		n.key, n.elem = c.node(t.Key(), nil, "", n.path+"{}"), c.node(t.Elem(), nil, "", n.path+"[]")
		if !isPlain(t.Key()) {
			c.fail(n, "the keys of a map must consist of numbers and strings: name it in Skip")
		}
	case reflect.Struct:
		if t.PkgPath() == "sync" {
			c.fail(n, "locks and the like have no key: name it in Skip")
		}
		for i := 0; t != timeType && t.PkgPath() != "sync" && i < t.NumField(); i++ {
			f := c.node(t.Field(i).Type, t, t.Field(i).Name, n.path+"."+t.Field(i).Name)
			if f.mode == skip || t.Field(i).Name == "_" {
				f = nil
			}
			n.fields = append(n.fields, f)
		}
	case reflect.Chan, reflect.Func, reflect.UnsafePointer, reflect.Interface, reflect.Float32, reflect.Float64:
		c.fail(n, "it has no key: name it in Skip, or in Share unless it is a number")
	}
}

// isPlain reports whether values of a type are equal if their contents are, whatever their addresses.
func isPlain(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array:
		return isPlain(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if !isPlain(t.Field(i).Type) {
				return false
			}
		}
		return true
	}
	return t.Kind() == reflect.String || t.Kind() >= reflect.Bool && t.Kind() <= reflect.Complex128
}
