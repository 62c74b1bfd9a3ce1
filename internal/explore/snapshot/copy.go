package snapshot

import (
	"fmt"
	"reflect"
	"unsafe"
)

// copier makes one copy at a time.
type copier struct {
	regions
	done  int // regions whose contents are copied
	iter  reflect.MapIter
	pairs []*pair // by mapping.scratch; nil: none, or in use
}

// pair is room for a key and an element of a map, and for the copy of the element.
type pair struct{ key, elem, copy reflect.Value }

// copy copies a value and all that it leads to.
func (c *copier) copy(l *layout, from unsafe.Pointer) unsafe.Pointer {
	c.known = c.known[:0]
	for {
		c.reset()
		c.done = 0
		to := c.pointer(from, l)
		for c.done < len(c.list) && !c.conflict {
			x := c.list[c.done]
			c.done++
			for i := range uintptr(x.count) {
				c.run(x.layout.ops, unsafe.Add(x.to, i*x.layout.size), unsafe.Add(x.from, i*x.layout.size))
			}
		}
		if !c.conflict {
			c.release()
			return to
		}
	}
}

// release drops what must not be kept alive.
func (c *copier) release() {
	clear(c.list)
	clear(c.known)
	c.iter.Reset(reflect.Value{})
}

// pointer returns the copy of a pointer.
func (c *copier) pointer(from unsafe.Pointer, l *layout) unsafe.Pointer {
	if from == nil || l.size == 0 || c.conflict {
		return from
	}
	i, off, isNew := c.find(from, l, 1, false)
	if c.conflict {
		return nil
	}
	if isNew {
		c.list[i].to = c.list[i].allocate()
	}
	return unsafe.Add(c.list[i].to, off)
}

// sliceHeader is a slice of any type in memory.
type sliceHeader struct {
	data     unsafe.Pointer
	len, cap int
}

func (c *copier) slice(l *layout, to, from *sliceHeader) {
	if from.data == nil || c.conflict {
		return
	}
	if from.len == 0 || l.size == 0 {
		*to = sliceHeader{reflect.MakeSlice(reflect.SliceOf(l.typ), from.len, from.len).UnsafePointer(), from.len, from.len}
		return
	}
	i, off, isNew := c.find(from.data, l, from.len, true)
	if c.conflict {
		return
	}
	x := &c.list[i]
	if isNew {
		x.to = x.allocate()
	}
	*to = sliceHeader{unsafe.Add(x.to, off), from.len, min(from.cap, int((x.size-off)/l.size))}
}

func (c *copier) run(ops []op, to, from unsafe.Pointer) {
	for i := range ops {
		o := &ops[i]
		to, from := unsafe.Add(to, o.off), unsafe.Add(from, o.off)
		switch o.code {
		case opBytes:
			copy(unsafe.Slice((*byte)(to), o.n), unsafe.Slice((*byte)(from), o.n))
		case opWord:
			*(*unsafe.Pointer)(to) = *(*unsafe.Pointer)(from)
		case opString:
			*(*string)(to) = *(*string)(from)
		case opPointer:
			*(*unsafe.Pointer)(to) = c.pointer(*(*unsafe.Pointer)(from), o.layout)
		case opSlice:
			c.slice(o.layout, (*sliceHeader)(to), (*sliceHeader)(from))
		case opMap:
			*(*unsafe.Pointer)(to) = c.mapCopy(o.mapping, from)
		case opInterface:
			c.interfaced(o, to, from)
		case opArray:
			for k := range o.n {
				c.run(o.layout.ops, unsafe.Add(to, k*o.layout.size), unsafe.Add(from, k*o.layout.size))
			}
		case opChannel:
			channel(o.typ, to, from)
		case opCustom:
			o.custom.copy(reflect.NewAt(o.typ, to).Elem(), reflect.NewAt(o.typ, from).Elem())
		}
	}
}

// channel makes a channel like another.
func channel(t reflect.Type, to, from unsafe.Pointer) {
	old := reflect.NewAt(t, from).Elem()
	if old.IsNil() {
		return
	}
	both := reflect.ChanOf(reflect.BothDir, t.Elem())
	made := reflect.MakeChan(both, old.Cap())
	if t.Elem() == reflect.TypeFor[struct{}]() {
		for range old.Len() {
			made.Send(reflect.ValueOf(struct{}{}))
		}
	}
	reflect.NewAt(t, to).Elem().Set(made.Convert(t))
}

// interfaceWords is an interface of any type in memory: its dynamic type, and the pointer or a pointer to the value.
type interfaceWords struct{ typ, data unsafe.Pointer }

// dynamic returns the type that an interface holds, and its number from 1. It is 0 for nil.
func dynamic(o *op, from unsafe.Pointer) (*held, int) {
	if (*interfaceWords)(from).typ == nil {
		return nil, 0
	}
	t := reflect.NewAt(o.typ, from).Elem().Elem().Type()
	for i := range o.holds {
		if h := &o.holds[i]; h.typ == t {
			return h, i + 1
		}
	}
	panic(fmt.Sprintf("snapshot: %s holds a %v, which Holds does not name", o.path, t))
}

func (c *copier) interfaced(o *op, to, from unsafe.Pointer) {
	h, n := dynamic(o, from)
	if n == 0 {
		return
	}
	words := *(*interfaceWords)(from)
	switch {
	case h.layout != nil:
		words.data = c.pointer(words.data, h.layout)
	case h.direct:
		data := words.data
		var copied unsafe.Pointer
		c.run(h.ops, unsafe.Pointer(&copied), unsafe.Pointer(&data))
		words.data = copied
	default:
		box := reflect.New(h.typ).UnsafePointer()
		c.run(h.ops, box, words.data)
		words.data = box
	}
	*(*interfaceWords)(to) = words
}

func (c *copier) mapCopy(m *mapping, from unsafe.Pointer) unsafe.Pointer {
	at := *(*unsafe.Pointer)(from)
	if at == nil || c.conflict {
		return nil
	}
	if n := c.slots[c.slot(uintptr(at))]; n != 0 {
		return c.list[n-1].to
	}
	i := c.add(region{from: at, size: 1})
	if m.direct != nil {
		old := *(*map[string]unsafe.Pointer)(from)
		made := make(map[string]unsafe.Pointer, len(old))
		c.list[i].to = *(*unsafe.Pointer)(unsafe.Pointer(&made))
		for k, v := range old {
			made[k] = c.pointer(v, m.direct)
		}
		return *(*unsafe.Pointer)(unsafe.Pointer(&made))
	}
	old := reflect.NewAt(m.typ, from).Elem()
	made := reflect.MakeMapWithSize(m.typ, old.Len())
	c.list[i].to = made.UnsafePointer()
	if old.Len() == 0 {
		return made.UnsafePointer()
	}
	p := pairOf(&c.pairs, m)
	var iter *reflect.MapIter
	if m.plain {
		iter = &c.iter
		iter.Reset(old)
	} else {
		iter = old.MapRange() // a value may have another map
	}
	for iter.Next() {
		p.key.SetIterKey(iter)
		p.elem.SetIterValue(iter)
		if m.plain {
			made.SetMapIndex(p.key, p.elem)
			continue
		}
		p.copy.SetZero()
		c.run(m.elemOps, p.copy.Addr().UnsafePointer(), p.elem.Addr().UnsafePointer())
		made.SetMapIndex(p.key, p.copy)
	}
	putPair(c.pairs, m, p)
	return made.UnsafePointer()
}

// pairOf returns room for a key and an element. A map of the same type inside of an element gets other room.
func pairOf(pairs *[]*pair, m *mapping) *pair {
	for len(*pairs) <= m.scratch {
		*pairs = append(*pairs, nil)
	}
	p := (*pairs)[m.scratch]
	(*pairs)[m.scratch] = nil
	if p == nil {
		p = &pair{reflect.New(m.key).Elem(), reflect.New(m.elem).Elem(), reflect.New(m.elem).Elem()}
	}
	return p
}

func putPair(pairs []*pair, m *mapping, p *pair) {
	p.key.SetZero()
	p.elem.SetZero()
	p.copy.SetZero()
	pairs[m.scratch] = p
}
