package snapshot

import (
	"reflect"
)

// mapping says how maps of a type are copied or keyed.
type mapping struct {
	typ       reflect.Type
	key, elem reflect.Type
	keyOps    []op // in keys
	elemOps   []op
	elemSize  uintptr
	plain     bool    // elements have nothing that is copied deeply; in keys: nothing that has a number
	direct    *layout // the map is from strings to pointers to this
	empty     bool    // see NilIsEmpty
	scratch   int     // index of its scratch
}

func (c *compiler) mapping(t reflect.Type, tr treatment, path string) *mapping {
	m := &mapping{typ: t, key: t.Key(), elem: t.Elem(), elemSize: t.Elem().Size(), empty: tr.empty, scratch: c.mappings}
	c.mappings++
	if !isPlain(t.Key()) {
		c.fail(t, path, "the keys of a map must consist of numbers and strings: name it in Share, and in Skip if it does not count")
		return m
	}
	elem := c.rules.treatment(t.Elem(), nil, "")
	if c.keys {
		m.keyOps = plainKey(nil, t.Key(), 0)
	}
	m.elemOps = c.value(nil, t.Elem(), 0, elem, path+"[]")
	m.plain = true
	for _, o := range m.elemOps {
		switch o.code {
		case opPointer, opSlice, opMap, opInterface, opArray, opChannel, opCustom, opRank, opShared:
			m.plain = false
		}
	}
	if len(m.elemOps) == 0 && t.Elem().Size() > 0 && !c.keys {
		m.plain = false // a fresh value
	}
	if t.Key().Kind() == reflect.String && len(m.elemOps) == 1 && m.elemOps[0].code == opPointer {
		m.direct = m.elemOps[0].layout
	}
	return m
}

// isPlain reports whether values of a type are equal if their contents are, whatever their addresses.
func isPlain(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String:
		return true
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
	return t.Kind() >= reflect.Bool && t.Kind() <= reflect.Complex128
}

// plainKey appends the ops for the key of a map. Rules do not apply to it: elements are in its order.
func plainKey(ops []op, t reflect.Type, off uintptr) []op {
	switch t.Kind() {
	case reflect.String:
		return append(ops, op{code: opString, off: off})
	case reflect.Array:
		for i := range t.Len() {
			ops = plainKey(ops, t.Elem(), off+uintptr(i)*t.Elem().Size())
		}
		return ops
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); f.Name != "_" {
				ops = plainKey(ops, f.Type, off+f.Offset)
			}
		}
		return ops
	}
	return plain(ops, off, t.Size())
}
