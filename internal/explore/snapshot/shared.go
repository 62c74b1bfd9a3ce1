package snapshot

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// maxShared bounds how many keys of shared objects a plan keeps. It forgets all when there are more: the keys of those
// that are in use are soon made again.
const maxShared = 1 << 16

// sharedKeys has the keys of shared objects by their addresses. It keeps the objects alive, so that no other object gets
// the address of one.
type sharedKeys struct {
	byObject sync.Map // of sharedKey, by unsafe.Pointer
	count    atomic.Int64
	keyers   sync.Pool
}

// sharedKey is the key of an object, with the ranks that it has in it.
type sharedKey struct {
	key   []byte
	ranks []ranked
}

func (k *keyer) sharedKey(from unsafe.Pointer, l *layout) {
	if from == nil {
		k.number(0)
		return
	}
	var x *sharedKey
	if has, ok := k.shared.byObject.Load(sharedAt{from, l}); ok {
		x = has.(*sharedKey)
	} else {
		x = k.shared.make(from, l)
	}
	k.number(uint64(len(x.key)))
	for _, r := range x.ranks {
		r.at += len(k.key) - k.begin
		k.ranks = append(k.ranks, r)
	}
	k.key = append(k.key, x.key...)
}

// sharedAt is an object: the first field of a struct has the same address, and another layout.
type sharedAt struct {
	from   unsafe.Pointer
	layout *layout
}

func (s *sharedKeys) make(from unsafe.Pointer, l *layout) *sharedKey {
	k := s.keyers.Get().(*keyer)
	defer s.keyers.Put(k)
	x := &sharedKey{key: k.append(nil, l, from)}
	x.ranks = append(x.ranks, k.ranks...)
	clear(k.ranks)
	if s.count.Add(1) > maxShared {
		s.byObject.Clear()
		s.count.Store(1)
	}
	s.byObject.Store(sharedAt{from, l}, x)
	return x
}
