package explore

import (
	"crypto/sha256"
	"encoding/binary"
)

// hash stands for the key of a state. It is half of a SHA-256, so that it spreads well whatever a key looks like: among
// 10^7 states two have the same hash with a probability of 10^14 / 2^129, which is less than 10^-24.
type hash [2]uint64

func hashOf(key []byte) hash {
	sum := sha256.Sum256(key)
	return hash{binary.LittleEndian.Uint64(sum[:8]), binary.LittleEndian.Uint64(sum[8:16])}
}

// none is the number of no state.
const none = ^uint32(0)

// table numbers states in the order in which they are added, from 0. A state takes 16 bytes for its hash, 6 for the way
// to it, and 6 to 11 for its slot. Any number of goroutines may read while nobody adds.
type table struct {
	hashes  pages[hash]
	parents pages[uint32] // none for a state in which the world may begin
	steps   pages[uint16] // index of the step from the parent, or of the start
	slots   []uint32      // number + 1, at the hash or after it; 0: empty
}

func newTable() *table { return &table{slots: make([]uint32, 1<<10)} }

func (t *table) len() int { return t.hashes.len }

// find returns the number of a state, or none.
func (t *table) find(h hash) uint32 { return t.slots[t.slot(h)] - 1 }

// slot returns the slot of a hash, or the empty slot for it.
func (t *table) slot(h hash) int {
	mask := len(t.slots) - 1
	for i := int(h[0]) & mask; ; i = (i + 1) & mask {
		if n := t.slots[i]; n == 0 || t.hashes.at(int(n-1)) == h {
			return i
		}
	}
}

// add numbers a state that find does not find.
func (t *table) add(h hash, parent uint32, step int) uint32 {
	if t.len() >= len(t.slots)/3*2 {
		t.grow()
	}
	n := uint32(t.len())
	t.slots[t.slot(h)] = n + 1
	t.hashes.append(h)
	t.parents.append(parent)
	t.steps.append(uint16(step))
	return n
}

func (t *table) grow() {
	t.slots = make([]uint32, 2*len(t.slots))
	mask := len(t.slots) - 1
	for n := range t.len() {
		i := int(t.hashes.at(n)[0]) & mask
		for t.slots[i] != 0 {
			i = (i + 1) & mask
		}
		t.slots[i] = uint32(n) + 1
	}
}

// way returns the index of the start and those of the steps that lead to a state.
func (t *table) way(n uint32) (start int, steps []int) {
	for ; t.parents.at(int(n)) != none; n = t.parents.at(int(n)) {
		steps = append(steps, int(t.steps.at(int(n))))
	}
	for i, j := 0, len(steps)-1; i < j; i, j = i+1, j-1 {
		steps[i], steps[j] = steps[j], steps[i]
	}
	return int(t.steps.at(int(n))), steps
}

// pages is a slice that grows without being copied: a copy of the largest would take as much memory again.
type pages[T any] struct {
	pages [][]T
	len   int
}

const pageSize = 1 << 12

func (p *pages[T]) append(v T) {
	if p.len%pageSize == 0 {
		p.pages = append(p.pages, make([]T, pageSize))
	}
	p.pages[p.len/pageSize][p.len%pageSize] = v
	p.len++
}

func (p *pages[T]) at(i int) T { return p.pages[uint(i)/pageSize][uint(i)%pageSize] }
