package snapshot

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"reflect"
	"slices"
	"time"
	"unsafe"
)

// keyer makes one key at a time.
type keyer struct {
	regions
	shared *sharedKeys
	key    []byte
	begin  int // of the key in the slice
	ranks  []ranked
	pairs  []*pair
	order  []int
}

// ranked is a value that is replaced by its rank, which is known only at the end.
type ranked struct {
	at    int // in the key, from its begin
	group int
	num   uint64
	text  string
}

const rankSize = 4

// append appends the key of a value to a slice, with room for the ranks.
func (k *keyer) append(to []byte, l *layout, from unsafe.Pointer) []byte {
	k.begin = len(to)
	k.known = k.known[:0]
	for {
		k.reset()
		k.key, k.ranks = to, k.ranks[:0]
		k.pointer(from, l)
		for done := 0; done < len(k.list) && !k.conflict; done++ {
			x := k.list[done]
			if x.count == 0 {
				continue // a map
			}
			k.number(uint64(x.layout.id))
			k.number(uint64(x.count))
			for i := range uintptr(x.count) {
				k.run(x.layout.ops, unsafe.Add(x.from, i*x.layout.size))
			}
		}
		if !k.conflict {
			clear(k.list)
			clear(k.known)
			key := k.key
			k.key = nil
			return key
		}
	}
}

// fillRanks writes the ranks into a key.
func (k *keyer) fillRanks(key []byte) {
	if len(k.order) < len(k.ranks) {
		k.order = make([]int, len(k.ranks))
	}
	order := k.order[:len(k.ranks)]
	for i := range order {
		order[i] = i
	}
	compare := func(a, b *ranked) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.num, b.num), cmp.Compare(a.text, b.text))
	}
	slices.SortFunc(order, func(i, j int) int { return compare(&k.ranks[i], &k.ranks[j]) })
	rank := uint32(0)
	for i, n := range order {
		x := &k.ranks[n]
		switch {
		case i == 0 || x.group != k.ranks[order[i-1]].group:
			rank = 0
			if x.num != 0 {
				rank = 1
			}
		case compare(x, &k.ranks[order[i-1]]) != 0:
			rank++
		}
		binary.BigEndian.PutUint32(key[k.begin+x.at:], rank)
	}
	clear(k.ranks)
}

func (k *keyer) number(n uint64) { k.key = binary.AppendUvarint(k.key, n) }

// place appends where some values are: the number of the region, in the order in which they are found, and the offset.
func (k *keyer) place(from unsafe.Pointer, l *layout, count int, slice bool) {
	i, off, _ := k.find(from, l, count, slice)
	switch {
	case k.conflict:
	case off == 0:
		k.number(uint64(i+1) << 1)
	default:
		k.number(uint64(i+1)<<1 | 1)
		k.number(uint64(off))
	}
}

func (k *keyer) pointer(from unsafe.Pointer, l *layout) {
	switch {
	case from == nil:
		k.number(0)
	case l.size == 0:
		k.number(1)
	case !k.conflict:
		k.place(from, l, 1, false)
	}
}

func (k *keyer) slice(l *layout, from *sliceHeader) {
	k.number(uint64(from.len))
	if from.len > 0 && l.size > 0 && !k.conflict {
		k.place(from.data, l, from.len, true)
	}
}

func (k *keyer) run(ops []op, from unsafe.Pointer) {
	for i := range ops {
		o := &ops[i]
		from := unsafe.Add(from, o.off)
		switch o.code {
		case opBytes:
			k.key = append(k.key, unsafe.Slice((*byte)(from), o.n)...)
		case opString:
			s := *(*string)(from)
			k.number(uint64(len(s)))
			k.key = append(k.key, s...)
		case opPointer:
			k.pointer(*(*unsafe.Pointer)(from), o.layout)
		case opSlice:
			k.slice(o.layout, (*sliceHeader)(from))
		case opMap:
			k.mapKey(o.mapping, from)
		case opInterface:
			k.interfaced(o, from)
		case opArray:
			for n := range o.n {
				k.run(o.layout.ops, unsafe.Add(from, n*o.layout.size))
			}
		case opCustom:
			k.key = o.custom.key(reflect.NewAt(o.typ, from).Elem(), k.key)
		case opShared:
			k.sharedKey(*(*unsafe.Pointer)(from), o.layout)
		case opIsNil:
			k.bit(*(*unsafe.Pointer)(from) == nil)
		case opTime:
			k.time(*(*time.Time)(from))
		case opIsZero:
			k.bit(reflect.NewAt(o.typ, from).Elem().IsZero() || o.typ == timeType && (*time.Time)(from).IsZero())
		case opRank:
			num, text := measure(o.typ, from)
			k.ranks = append(k.ranks, ranked{len(k.key) - k.begin, o.group, num, text})
			k.key = append(k.key, 0, 0, 0, 0)
		case opSaturate:
			k.saturated(o, from)
		}
	}
}

func (k *keyer) bit(b bool) {
	if b {
		k.key = append(k.key, 1)
	} else {
		k.key = append(k.key, 0)
	}
}

func (k *keyer) time(t time.Time) {
	if t.IsZero() {
		k.key = append(k.key, 0)
		return
	}
	k.key = binary.BigEndian.AppendUint64(append(k.key, 1), uint64(t.Unix()))
	k.key = binary.BigEndian.AppendUint32(k.key, uint32(t.Nanosecond()))
}

// measure returns what ranks values: 0 and "" only for zero.
func measure(t reflect.Type, from unsafe.Pointer) (uint64, string) {
	const sign = 1 << 63
	v := reflect.NewAt(t, from).Elem()
	switch {
	case t == timeType:
		at := (*time.Time)(from)
		if at.IsZero() {
			return 0, ""
		}
		return uint64(at.UnixNano()) ^ sign, ""
	case t.Kind() == reflect.String:
		s := *(*string)(from)
		return uint64(len(s)), s
	case v.IsZero():
		return 0, ""
	case v.CanInt():
		return uint64(v.Int()) ^ sign, ""
	}
	return v.Uint(), ""
}

func (k *keyer) saturated(o *op, from unsafe.Pointer) {
	v := reflect.NewAt(o.typ, from).Elem()
	if v.CanInt() {
		k.key = binary.AppendVarint(k.key, min(v.Int(), int64(o.limit)))
	} else {
		k.number(min(v.Uint(), o.limit))
	}
}

func (k *keyer) interfaced(o *op, from unsafe.Pointer) {
	h, n := dynamic(o, from)
	k.number(uint64(n))
	if n == 0 {
		return
	}
	words := *(*interfaceWords)(from)
	switch {
	case h.layout != nil:
		k.pointer(words.data, h.layout)
	case h.direct:
		k.run(h.ops, unsafe.Pointer(&words.data))
	default:
		k.run(h.ops, words.data)
	}
}

// mapItem is an element of a map, and where its key is in keyer.key.
type mapItem struct {
	start, end int
	elem       unsafe.Pointer
}

func (k *keyer) mapKey(m *mapping, from unsafe.Pointer) {
	at := *(*unsafe.Pointer)(from)
	n := 0
	if at != nil {
		n = reflect.NewAt(m.typ, from).Elem().Len()
	}
	if at == nil || n == 0 && m.empty {
		k.number(0)
		return
	}
	if i := k.slots[k.slot(uintptr(at))]; i != 0 {
		k.number(1)
		k.number(uint64(i))
		return
	}
	k.add(region{from: at, size: 1})
	k.number(uint64(n) + 2)
	if n == 0 || k.conflict {
		return
	}
	var room [8]mapItem
	start := len(k.key)
	items := k.items(m, from, room[:0])
	slices.SortFunc(items, func(a, b mapItem) int { return bytes.Compare(k.key[a.start:a.end], k.key[b.start:b.end]) })
	end := len(k.key)
	for _, x := range items {
		k.key = append(k.key, k.key[x.start:x.end]...)
	}
	k.key = append(k.key[:start], k.key[end:]...)
	switch {
	case m.direct != nil:
		for _, x := range items {
			k.pointer(x.elem, m.direct)
		}
	case !m.plain:
		for _, x := range items {
			k.run(m.elemOps, x.elem)
		}
	}
}

// items appends the keys of the elements of a map to the key, in no order. Plain elements follow their keys.
func (k *keyer) items(m *mapping, from unsafe.Pointer, items []mapItem) []mapItem {
	if m.direct != nil {
		for name, elem := range *(*map[string]unsafe.Pointer)(from) {
			start := len(k.key)
			k.number(uint64(len(name)))
			k.key = append(k.key, name...)
			items = append(items, mapItem{start, len(k.key), elem})
		}
		return items
	}
	p := pairOf(&k.pairs, m)
	iter := reflect.NewAt(m.typ, from).Elem().MapRange()
	for iter.Next() {
		start := len(k.key)
		p.key.SetIterKey(iter)
		k.run(m.keyOps, p.key.Addr().UnsafePointer())
		if m.plain {
			p.elem.SetIterValue(iter)
			k.run(m.elemOps, p.elem.Addr().UnsafePointer())
			items = append(items, mapItem{start: start, end: len(k.key)})
			continue
		}
		elem := reflect.New(m.elem)
		elem.Elem().SetIterValue(iter)
		items = append(items, mapItem{start, len(k.key), elem.UnsafePointer()})
	}
	putPair(k.pairs, m, p)
	return items
}
