package hub

import (
	"sync"
	"unsafe"
)

// maxStepMemory bounds the memory of the steps of a process in bytes: thousands of attaches may fail for days, each with
// texts of its own.
const maxStepMemory = 6 << 20

// stepMemory bounds the memory of the steps of operations. Once they take more than max, the operations whose last step is
// the oldest keep only how many steps they had.
type stepMemory struct {
	max int

	mu    sync.Mutex // guards the operations too
	bytes int
	ends  operation // the newest is older than it, the oldest newer: a ring
}

func newStepMemory(max int) *stepMemory {
	m := &stepMemory{max: max}
	m.ends.older, m.ends.newer = &m.ends, &m.ends
	return m
}

// used notes that an operation has a new step. The caller has locked mu, as in remove.
func (m *stepMemory) used(o *operation) {
	m.remove(o)
	o.older, o.newer = m.ends.older, &m.ends
	o.older.newer, o.newer.older = o, o
	o.size = o.bytes()
	m.bytes += o.size
	for oldest := m.ends.newer; m.bytes > m.max && oldest != o; oldest = m.ends.newer {
		m.remove(oldest)
		oldest.forget()
	}
}

// remove does nothing with an operation that has no steps here.
func (m *stepMemory) remove(o *operation) {
	if o.newer == nil {
		return
	}
	o.older.newer, o.newer.older = o.newer, o.older
	o.older, o.newer = nil, nil
	m.bytes -= o.size
}

// release notes that an operation is not used any more; nil is none.
func (m *stepMemory) release(o *operation) {
	if o == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remove(o)
}

// bytes returns the memory that an operation takes.
func (o *operation) bytes() int {
	n := int(unsafe.Sizeof(*o)) + cap(o.kept)*int(unsafe.Sizeof(step{}))
	for _, text := range o.texts {
		n += len(text)
	}
	for _, s := range o.kept {
		if s.kind == waited { // the others are constants
			n += len(s.what)
		}
	}
	return n
}

// forget keeps only how many steps there were.
func (o *operation) forget() {
	for _, s := range o.kept {
		o.omit(s)
	}
	o.kept, o.texts, o.forgotten = nil, [len(o.texts)]string{}, true
}

// textIndex is 0 for no error, the place of its text in operation.texts from 1, or textGone.
type textIndex uint8

const textGone = textIndex(len(operation{}.texts) + 1)

// goneText is what is shown of an error whose text is not kept.
const goneText = "failed with another error, whose text is not kept"

// textOf keeps the text of an error. The texts of the first error and of the last two others are kept.
func (o *operation) textOf(text string) textIndex {
	if text == "" {
		return 0
	}
	for i, known := range o.texts {
		switch {
		case known == "":
			o.texts[i] = text
			return textIndex(i + 1)
		case known == text && i == 1 && o.texts[2] != "": // it is the latest now
			o.texts[1], o.texts[2] = o.texts[2], text
			o.renumber(3, 2)
			return 3
		case known == text:
			return textIndex(i + 1)
		}
	}
	o.texts[1], o.texts[2] = o.texts[2], text
	o.renumber(textGone, 2)
	return 3
}

// renumber replaces the indexes 2 and 3 in the steps.
func (o *operation) renumber(second, third textIndex) {
	for i, s := range o.kept {
		switch s.failure {
		case 2:
			o.kept[i].failure = second
		case 3:
			o.kept[i].failure = third
		}
	}
}
