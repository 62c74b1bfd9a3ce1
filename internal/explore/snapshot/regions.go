package snapshot

import (
	"reflect"
	"unsafe"
)

// region is memory that is copied, or keyed, as a whole: a value, or the array of a slice.
type region struct {
	from   unsafe.Pointer
	size   uintptr
	layout *layout
	count  int // values
	slice  bool
	to     unsafe.Pointer // of the copy
}

func (r *region) start() uintptr { return uintptr(r.from) }
func (r *region) end() uintptr   { return uintptr(r.from) + r.size }

// regions are those of one walk. A pointer may lead into the middle of a value that is found only later, and slices may
// overlap. Such a walk ends in a conflict. The walk is then made again, and knows the larger region from the start.
type regions struct {
	list     []region
	slots    []int32 // index in list + 1, at the hash of the start or after it
	known    []region
	conflict bool
}

func (r *regions) reset() {
	clear(r.list)
	r.list = r.list[:0]
	if len(r.slots) == 0 {
		r.slots = make([]int32, 128)
	}
	clear(r.slots)
	r.conflict = false
}

func (r *regions) slot(start uintptr) int {
	mask := uintptr(len(r.slots) - 1)
	i := (start >> 3) * 0x9E3779B97F4A7C15 >> 32 & mask
	for r.slots[i] != 0 && r.list[r.slots[i]-1].start() != start {
		i = (i + 1) & mask
	}
	return int(i)
}

// add adds a region that begins where none does.
func (r *regions) add(x region) int {
	if 2*len(r.list) >= len(r.slots) {
		r.slots = make([]int32, 2*len(r.slots))
		for i := range r.list {
			r.slots[r.slot(r.list[i].start())] = int32(i + 1)
		}
	}
	slot := r.slot(x.start())
	r.list = append(r.list, x)
	r.slots[slot] = int32(len(r.list))
	return len(r.list) - 1
}

// find returns the region that has some values, and where in it they are. It adds the region if it is new.
func (r *regions) find(from unsafe.Pointer, l *layout, count int, slice bool) (index int, off uintptr, isNew bool) {
	x := region{from: from, size: l.size * uintptr(count), layout: l, count: count, slice: slice}
	if n := r.slots[r.slot(x.start())]; n != 0 {
		if has := &r.list[n-1]; has.size >= x.size {
			return int(n - 1), 0, false
		}
		r.collide(x, r.list[n-1])
		return 0, 0, false
	}
	if l.inner || l.outer || slice {
		for i := range r.list {
			switch has := &r.list[i]; {
			case has.start() >= x.end() || has.end() <= x.start():
			case has.start() <= x.start() && has.end() >= x.end():
				return i, x.start() - has.start(), false
			default:
				r.collide(x, *has)
				return 0, 0, false
			}
		}
	}
	for _, k := range r.known {
		if k.start() <= x.start() && k.end() >= x.end() {
			return r.add(k), x.start() - k.start(), true
		}
	}
	return r.add(x), 0, true
}

// collide notes the union of two regions for the next walk.
func (r *regions) collide(a, b region) {
	r.conflict = true
	all := union(a, b)
	rest := r.known[:0]
	for _, k := range r.known {
		if k.end() <= all.start() || k.start() >= all.end() {
			rest = append(rest, k)
		} else {
			all = union(all, k)
		}
	}
	r.known = append(rest, all)
}

func union(a, b region) region {
	if a.start() > b.start() || a.start() == b.start() && a.size < b.size {
		a, b = b, a
	}
	if b.end() <= a.end() {
		return a
	}
	if !a.slice || !b.slice || a.layout != b.layout {
		panic("snapshot: values of the types " + a.layout.typ.String() + " and " + b.layout.typ.String() + " overlap")
	}
	a.size = b.end() - a.start()
	a.count = int(a.size / a.layout.size)
	return a
}

// allocate returns memory for a copy of a region.
func (x *region) allocate() unsafe.Pointer {
	if !x.slice {
		return reflect.New(x.layout.typ).UnsafePointer()
	}
	return reflect.MakeSlice(reflect.SliceOf(x.layout.typ), x.count, x.count).UnsafePointer()
}
