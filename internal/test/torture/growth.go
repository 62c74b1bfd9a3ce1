package torture

import (
	"context"
	"fmt"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// Sample is what a hub process takes at a quiet.
type Sample struct {
	Hub        string `json:"hub"`
	PID        int    `json:"pid"`
	Stretch    int    `json:"stretch"`
	Goroutines int    `json:"goroutines"`
	Files      int    `json:"openFiles"`
	Heap       int    `json:"heapBytes"` // in use after a garbage collection
}

// How much more a process may take at its last quiet than at its first one. It has the same to do at
// both, but later it may lead more drivers, and has metrics of past failures.
const (
	moreGoroutines = 40
	moreFiles      = 8
	moreHeap       = 4 << 20
)

// sample asks a hub what it takes after a garbage collection.
func sample(ctx context.Context, r *replica, stretch int) (Sample, error) {
	hub := r.current()
	s := Sample{Hub: r.name, PID: hub.PID(), Stretch: stretch}
	err := testbed.Insist(ctx, "ask "+r.name+" what it takes", func(ctx context.Context) error {
		v, err := hub.Vitals(ctx)
		s.Goroutines, s.Files, s.Heap = v.Goroutines, v.Descriptors, int(v.Heap)
		return err
	})
	return s, err
}

// grown compares the last sample of each process with its first one.
func grown(samples []Sample) []Finding {
	first := map[int]Sample{}
	last := map[int]Sample{}
	for _, s := range samples {
		if _, ok := first[s.PID]; !ok {
			first[s.PID] = s
		}
		last[s.PID] = s
	}
	var f []Finding
	for pid, a := range first {
		b := last[pid]
		for _, c := range []struct {
			what      string
			was, is   int
			more, per int // allowed rise: more, or a per-th part of was
		}{
			{"goroutines", a.Goroutines, b.Goroutines, moreGoroutines, 4},
			{"open files", a.Files, b.Files, moreFiles, 4},
			{"bytes of heap", a.Heap, b.Heap, moreHeap, 2},
		} {
			if c.is > c.was+max(c.more, c.was/c.per) {
				f = append(f, Finding{About: a.Hub, Text: fmt.Sprintf("process %d had %d %s at quiet %d and has %d at quiet %d", pid, c.was, c.what, a.Stretch, c.is, b.Stretch)})
			}
		}
	}
	return f
}
