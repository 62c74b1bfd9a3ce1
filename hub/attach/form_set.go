package attach

import (
	"math/bits"
	"slices"
	"strings"
)

// formSet finds the forms of one value in texts. The effort for each byte of a text is small where no form begins:
// filter excludes nearly all of these bytes. It grows with the logarithm of the number of forms where a form may begin,
// and with the number of forms that begin with one another.
type formSet struct {
	forms  []string // sorted, each once
	prefix []int32  // of each form, the index of the longest other form that it begins with; -1: none
	filter []uint64 // bits; the bit of each form's head is set
}

// formSets are the formSets of several values.
type formSets []formSet

// head is the first bytes of a form, mixed: each bit depends on them all.
type head uint64

// headOf returns the head of a text of at least shortestSecret bytes.
func headOf(text string) head {
	var h head
	for i := range shortestSecret {
		h = h<<8 | head(text[i])
	}
	return h * 0x9e3779b97f4a7c15
}

// bit returns the word and the bit of a head in a filter, whose length is a power of two.
func (h head) bit(filter []uint64) (word int, mask uint64) {
	i := uint64(h) >> (64 - 6 - bits.TrailingZeros(uint(len(filter))))
	return int(i / 64), 1 << (i % 64)
}

// newFormSet returns the set of forms of at least shortestSecret bytes. It takes the slice.
func newFormSet(forms []string) formSet {
	slices.Sort(forms)
	forms = slices.Clip(slices.Compact(forms))
	s := formSet{forms: forms, prefix: make([]int32, len(forms)), filter: make([]uint64, 1<<bits.Len(uint(len(forms)/2)))}
	for i, form := range forms {
		word, mask := headOf(form).bit(s.filter)
		s.filter[word] |= mask
		p := int32(i) - 1
		for p >= 0 && !strings.HasPrefix(form, forms[p]) {
			p = s.prefix[p]
		}
		s.prefix[i] = p
	}
	return s
}

// longest returns the length of the longest form that a text begins with, 0 if there is none.
func (s formSets) longest(text string) int {
	if len(text) < shortestSecret {
		return 0
	}
	h, longest := headOf(text), 0
	for i := range s {
		if word, mask := h.bit(s[i].filter); s[i].filter[word]&mask != 0 {
			longest = max(longest, s[i].longest(text))
		}
	}
	return longest
}

func (s formSet) longest(text string) int {
	// All forms between the one that is looked for and the text, in this order, begin with it.
	i, same := slices.BinarySearch(s.forms, text)
	if same {
		return len(text)
	}
	if i--; i < 0 {
		return 0
	}
	common := commonPrefix(s.forms[i], text)
	for ; i >= 0; i = int(s.prefix[i]) {
		if len(s.forms[i]) <= common {
			return len(s.forms[i])
		}
	}
	return 0
}

// commonPrefix returns the number of bytes that two texts both begin with.
func commonPrefix(a, b string) int {
	const step = 64
	i := 0
	for i+step <= min(len(a), len(b)) && a[i:i+step] == b[i:i+step] {
		i += step
	}
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	return i
}
