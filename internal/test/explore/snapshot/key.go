package snapshot

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"time"
	"unsafe"
)

// Append appends the key of a value to a slice. Two values have the same key if they differ only in what the rules leave out.
func (p *Plan[T]) Append(key []byte, from *T) []byte {
	k := keyer{key: key, found: map[place]int{}}
	k.value(p.root, reflect.ValueOf(from).Elem())
	k.fillRanks()
	return k.key
}

// keyer makes one key.
type keyer struct {
	key   []byte
	found map[place]int // values that pointers lead to, and maps, by the order in which they were found
	ranks []ranked
}

// place is where a value is: the first field of a struct has the same address, and another type.
type place struct {
	at  unsafe.Pointer
	typ reflect.Type
}

func (k *keyer) number(n uint64) { k.key = binary.AppendUvarint(k.key, n) }

func (k *keyer) bit(b bool) {
	if b {
		k.key = append(k.key, 1)
	} else {
		k.key = append(k.key, 0)
	}
}

// again reports whether a place was found before, and appends which one it is.
func (k *keyer) again(p place) bool {
	n, ok := k.found[p]
	if !ok {
		n = 0
		k.found[p] = len(k.found) + 1
	}
	k.number(uint64(n))
	return ok
}

// value appends a value, which has an address if pointers lead to values of its type.
func (k *keyer) value(n *node, v reflect.Value) {
	switch n.mode {
	case skip:
	case zero:
		k.bit(v.IsZero() || n.typ == timeType && timeOf(v).IsZero())
	case rank:
		k.ranked(n, v)
	case saturate:
		if v.CanInt() {
			k.key = binary.AppendVarint(k.key, min(v.Int(), int64(n.limit)))
		} else {
			k.number(min(v.Uint(), n.limit))
		}
	case share:
		if k.bit(v.IsZero()); n.elem != nil && !v.IsNil() {
			others := k.found
			k.found = map[place]int{}
			k.value(n.elem, v.Elem())
			k.found = others
		}
	default:
		if !n.pointed || !k.again(place{v.Addr().UnsafePointer(), n.typ}) {
			k.deep(n, v)
		}
	}
}

func (k *keyer) deep(n *node, v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		k.bit(v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		k.key = binary.AppendVarint(k.key, v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		k.number(v.Uint())
	case reflect.String:
		k.number(uint64(v.Len()))
		k.key = append(k.key, v.String()...)
	case reflect.Pointer:
		if k.bit(v.IsNil()); !v.IsNil() {
			k.value(n.elem, v.Elem())
		}
	case reflect.Slice:
		k.number(uint64(v.Len()))
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			k.value(n.elem, v.Index(i))
		}
	case reflect.Struct:
		if n.typ == timeType {
			k.key = fmt.Appendf(k.key, "%d;", timeOf(v).UnixNano())
		}
		for i, f := range n.fields {
			if f != nil {
				k.value(f, exported(v.Field(i)))
			}
		}
	case reflect.Map:
		k.mapping(n, v)
	default:
		panic(fmt.Sprintf("snapshot: %s is a %v", n.path, v.Kind()))
	}
}

// exported returns a field as if it were exported.
func exported(f reflect.Value) reflect.Value {
	if f.CanInterface() {
		return f
	}
	return reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem()
}

// placed returns a value in memory of its own, where it has an address.
func placed(v reflect.Value) reflect.Value {
	at := reflect.New(v.Type()).Elem()
	at.Set(v)
	return at
}

func timeOf(v reflect.Value) time.Time { return *(*time.Time)(v.Addr().UnsafePointer()) }

func (k *keyer) mapping(n *node, v reflect.Value) {
	if k.bit(v.IsNil()); v.IsNil() || k.again(place{v.UnsafePointer(), n.typ}) {
		return
	}
	type item struct {
		key  []byte
		elem reflect.Value
	}
	items, key := make([]item, 0, v.Len()), k.key
	for iter := v.MapRange(); iter.Next(); {
		k.key = nil
		k.value(n.key, placed(iter.Key()))
		items = append(items, item{k.key, iter.Value()})
	}
	k.key = key
	slices.SortFunc(items, func(a, b item) int { return bytes.Compare(a.key, b.key) })
	k.number(uint64(len(items)))
	for _, x := range items {
		k.key = append(k.key, x.key...)
		k.value(n.elem, placed(x.elem))
	}
}

// ranked is a value that is replaced by its rank, which is known only at the end.
type ranked struct {
	at    int // in the key
	group int
	num   uint64
	text  string
}

func (r ranked) compare(o ranked) int {
	return cmp.Or(cmp.Compare(r.group, o.group), cmp.Compare(r.num, o.num), cmp.Compare(r.text, o.text))
}

// ranked leaves room for a rank.
func (k *keyer) ranked(n *node, v reflect.Value) {
	const sign = 1 << 63
	r := ranked{at: len(k.key), group: n.group}
	switch {
	case v.IsZero():
	case v.CanInt():
		r.num = uint64(v.Int()) ^ sign
	case v.CanUint():
		r.num = v.Uint()
	default:
		r.num, r.text = uint64(v.Len()), v.String()
	}
	k.ranks = append(k.ranks, r)
	k.key = append(k.key, 0, 0, 0, 0)
}

// fillRanks writes the ranks into the key.
func (k *keyer) fillRanks() {
	slices.SortFunc(k.ranks, ranked.compare)
	rank := uint32(0)
	for i, x := range k.ranks {
		switch {
		case i == 0 || x.group != k.ranks[i-1].group:
			rank = 0
			if x.num != 0 {
				rank = 1
			}
		case x.compare(k.ranks[i-1]) != 0:
			rank++
		}
		binary.BigEndian.PutUint32(k.key[x.at:], rank)
	}
}
