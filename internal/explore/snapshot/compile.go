package snapshot

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unsafe"
)

// layout says how the values of a type that have an address of their own are copied, or keyed.
type layout struct {
	id    int
	typ   reflect.Type
	size  uintptr
	ops   []op
	inner bool // a value may be part of a larger one
	outer bool // a part of a value may have a pointer or a slice to it
}

// op treats a part of a value, at an offset.
type op struct {
	code    opCode
	off     uintptr
	n       uintptr // bytes, or values of an array
	layout  *layout // of what a pointer or slice leads to, or of the values of an array
	mapping *mapping
	holds   []held
	limit   uint64
	group   int
	custom  *custom
	typ     reflect.Type
	path    string
}

type opCode uint8

const (
	opBytes opCode = iota // n bytes without pointers
	opWord                // one pointer that is shared
	opString
	opPointer
	opSlice
	opMap
	opInterface
	opArray
	opChannel
	opCustom
	// only in keys:
	opShared
	opIsNil
	opIsZero
	opTime
	opRank
	opSaturate
)

// held is a type that an interface may hold. If it is a pointer, layout is what it points to, else ops are for the value.
type held struct {
	typ    reflect.Type
	layout *layout
	ops    []op
	direct bool // the interface has the value in place of a pointer to it
}

// compiler compiles the layouts of all types that a type leads to, for copies or for keys.
type compiler struct {
	rules    *rules
	keys     bool
	layouts  map[reflect.Type]*layout
	list     []*layout
	pointed  map[reflect.Type]bool // pointers or slices lead to it
	errs     []string
	mappings int
}

var timeType = reflect.TypeFor[time.Time]()

// layout returns the layout of a type. The path is one of fields that leads to it.
func (c *compiler) layout(t reflect.Type, path string) *layout {
	c.pointed[t] = true
	l := c.layouts[t]
	if l == nil {
		l = &layout{id: len(c.list), typ: t, size: t.Size()}
		c.layouts[t], c.list = l, append(c.list, l)
		l.ops = c.value(nil, t, 0, c.rules.treatment(t, nil, ""), path)
	}
	return l
}

// finish notes which values may be part of others.
func (c *compiler) finish() {
	for _, l := range c.list {
		eachPart(l.typ, func(part reflect.Type) {
			if inner := c.layouts[part]; inner != nil {
				inner.inner = true
			}
			l.outer = l.outer || c.pointed[part]
		})
	}
}

// eachPart calls f for the types of all parts of a type, other than itself.
func eachPart(t reflect.Type, f func(reflect.Type)) {
	each := func(part reflect.Type) {
		f(part)
		eachPart(part, f)
	}
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			each(t.Field(i).Type)
		}
	case reflect.Array:
		each(t.Elem())
	}
}

func (c *compiler) fail(t reflect.Type, path, format string, args ...any) {
	text := fmt.Sprintf("%s (%v): %s", path, t, fmt.Sprintf(format, args...))
	if !slices.Contains(c.errs, text) {
		c.errs = append(c.errs, text)
	}
}

// value appends the ops for a value at an offset.
func (c *compiler) value(ops []op, t reflect.Type, off uintptr, tr treatment, path string) []op {
	if c.keys {
		if tr.key != deepKey {
			return c.reduced(ops, t, off, tr, path)
		}
		if tr.copy == shareCopy {
			return c.sharedKey(ops, t, off, tr, path)
		}
	} else {
		switch tr.copy {
		case shareCopy:
			return shallow(ops, t, off)
		case freshCopy:
			if t.Kind() == reflect.Chan {
				ops = append(ops, op{code: opChannel, off: off, typ: t})
			}
			return ops // a copy is zero at first
		case customCopy:
			return append(ops, op{code: opCustom, off: off, custom: tr.custom, typ: t})
		}
	}
	return c.deep(ops, t, off, tr, path)
}

func (c *compiler) deep(ops []op, t reflect.Type, off uintptr, tr treatment, path string) []op {
	switch t.Kind() {
	case reflect.String:
		return append(ops, op{code: opString, off: off})
	case reflect.Pointer:
		return append(ops, op{code: opPointer, off: off, layout: c.layout(t.Elem(), path)})
	case reflect.Slice:
		return append(ops, op{code: opSlice, off: off, layout: c.layout(t.Elem(), path+"[]")})
	case reflect.Map:
		return append(ops, op{code: opMap, off: off, mapping: c.mapping(t, tr, path)})
	case reflect.Interface:
		return c.interfaced(ops, t, off, tr, path)
	case reflect.Array:
		return c.array(ops, t, off, path)
	case reflect.Struct:
		return c.fields(ops, t, off, path)
	case reflect.Chan, reflect.Func, reflect.UnsafePointer:
		if c.keys {
			c.fail(t, path, "a key cannot have a %v: name it in Skip, Share or Fresh", t.Kind())
		} else {
			c.fail(t, path, "a %v cannot be copied: name it in Share or Fresh", t.Kind())
		}
		return ops
	}
	return plain(ops, off, t.Size())
}

func (c *compiler) fields(ops []op, t reflect.Type, off uintptr, path string) []op {
	switch {
	case t == timeType && c.keys:
		return append(ops, op{code: opTime, off: off})
	case t == timeType:
		return shallow(ops, t, off)
	case t.PkgPath() == "sync":
		c.fail(t, path, "locks and the like cannot be copied: name it in Fresh")
		return ops
	}
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Name == "_" && (c.keys || f.Type.Size() == 0) {
			continue
		}
		ops = c.value(ops, f.Type, off+f.Offset, c.rules.treatment(f.Type, t, f.Name), path+"."+f.Name)
	}
	return ops
}

// unrolled is the size of arrays up to which there are ops for each value.
const unrolled = 16

func (c *compiler) array(ops []op, t reflect.Type, off uintptr, path string) []op {
	e := t.Elem()
	tr := c.rules.treatment(e, nil, "")
	if t.Len() <= unrolled {
		for i := range t.Len() {
			ops = c.value(ops, e, off+uintptr(i)*e.Size(), tr, path+"[]")
		}
		return ops
	}
	one := &layout{typ: e, size: e.Size(), ops: c.value(nil, e, 0, tr, path+"[]")}
	return append(ops, op{code: opArray, off: off, n: uintptr(t.Len()), layout: one})
}

func (c *compiler) interfaced(ops []op, t reflect.Type, off uintptr, tr treatment, path string) []op {
	if tr.holds == nil {
		c.fail(t, path, "an interface may hold anything: name it in Holds or Share, and in Skip if it does not count")
		return ops
	}
	o := op{code: opInterface, off: off, typ: t, path: path}
	for _, dynamic := range tr.holds {
		if dynamic == nil || !dynamic.AssignableTo(t) {
			c.fail(t, path, "it cannot hold the %v that Holds names", dynamic)
			continue
		}
		sample := reflect.Zero(dynamic).Interface()
		h := held{typ: dynamic, direct: (*interfaceWords)(unsafe.Pointer(&sample)).data == nil}
		switch inside := c.rules.treatment(dynamic, nil, ""); {
		case dynamic.Kind() != reflect.Pointer || inside.copy != deepCopy || inside.key != deepKey:
			h.ops = c.value(nil, dynamic, 0, inside, path+".("+dynamic.String()+")")
		default:
			h.layout = c.layout(dynamic.Elem(), path+".("+dynamic.String()+")")
		}
		o.holds = append(o.holds, h)
	}
	return append(ops, o)
}

// sharedKey appends the ops for the key of a value that copies share.
func (c *compiler) sharedKey(ops []op, t reflect.Type, off uintptr, tr treatment, path string) []op {
	switch t.Kind() {
	case reflect.Pointer:
		return append(ops, op{code: opShared, off: off, layout: c.layout(t.Elem(), path)})
	case reflect.Func, reflect.Chan, reflect.UnsafePointer, reflect.Interface:
		return append(ops, op{code: opIsNil, off: off})
	}
	return c.deep(ops, t, off, tr, path)
}

// reduced appends the ops for the key of a value of which not all counts.
func (c *compiler) reduced(ops []op, t reflect.Type, off uintptr, tr treatment, path string) []op {
	o := op{off: off, typ: t, group: tr.group, limit: tr.limit, custom: tr.custom}
	ints := t.Kind() >= reflect.Int && t.Kind() <= reflect.Uintptr
	switch tr.key {
	case skipKey:
		return ops
	case customKey:
		o.code = opCustom
	case saturateKey:
		o.code = opSaturate
		if !ints {
			c.fail(t, path, "Saturate takes integers")
		}
	case zeroKey, rankKey:
		o.code = map[keyMode]opCode{zeroKey: opIsZero, rankKey: opRank}[tr.key]
		if !ints && t != timeType && t.Kind() != reflect.String {
			c.fail(t, path, "Zero and Rank take integers, strings and time.Time")
		}
	}
	return append(ops, o)
}

// plain appends n bytes without pointers, to those before if they follow them.
func plain(ops []op, off, n uintptr) []op {
	if last := len(ops) - 1; last >= 0 && ops[last].code == opBytes && ops[last].off+ops[last].n == off {
		ops[last].n += n
		return ops
	}
	return append(ops, op{code: opBytes, off: off, n: n})
}

// shallow appends the ops that copy a value of any type word by word.
func shallow(ops []op, t reflect.Type, off uintptr) []op {
	const word = 8
	switch t.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Chan, reflect.Func, reflect.UnsafePointer:
		return append(ops, op{code: opWord, off: off})
	case reflect.String:
		return append(ops, op{code: opString, off: off})
	case reflect.Slice:
		return plain(append(ops, op{code: opWord, off: off}), off+word, 2*word)
	case reflect.Interface:
		return append(ops, op{code: opWord, off: off}, op{code: opWord, off: off + word})
	case reflect.Array:
		for i := range t.Len() {
			ops = shallow(ops, t.Elem(), off+uintptr(i)*t.Elem().Size())
		}
		return ops
	case reflect.Struct:
		for i := range t.NumField() {
			ops = shallow(ops, t.Field(i).Type, off+t.Field(i).Offset)
		}
		return ops
	}
	return plain(ops, off, t.Size())
}

// joined returns all errors in one.
func joined(t reflect.Type, errs []string) error {
	if len(errs) == 0 {
		return nil
	}
	slices.Sort(errs)
	return fmt.Errorf("no snapshot plan for %v:\n\t%s", t, strings.Join(slices.Compact(errs), "\n\t"))
}
