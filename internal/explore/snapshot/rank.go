package snapshot

import (
	"cmp"
	"encoding/binary"
	"reflect"
	"slices"
	"time"
	"unsafe"
)

// ranked is a value that is replaced by its rank, which is known only at the end.
type ranked struct {
	at    int // in the key, from its begin
	group int
	num   uint64
	text  string
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
