package snapshot

import "reflect"

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
