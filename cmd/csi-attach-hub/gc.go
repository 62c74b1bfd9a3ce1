package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// gcPercent is Go's GOGC for a large heap: the garbage, in percent of the heap in use, that starts a
	// collection. Most of a large hub's heap are caches that stay, so with Go's default of 100 half of its memory
	// would be garbage.
	gcPercent = 50
	// minGarbage is how many bytes of garbage a heap may have before a collection, however small it is. With
	// gcPercent alone a hub with few volumes would spend a fifth of its CPU time on collections in a burst.
	minGarbage = 14 << 20
	// goHeap is the heap that Go lets a program have before a collection, with GOGC 100. GOGC scales it too.
	goHeap = 4 << 20
)

// followHeap sets GOGC to gcPercent, or to as much as minGarbage needs, now and after each collection. It does nothing if
// the environment variable GOGC is set. It returns at once and has no goroutine: each collection finds an object that
// nothing refers to, and its cleanup makes the next one.
func followHeap() { setGCPercent(0) }

// setGCPercent sets GOGC for the heap in use, unless it was set to that before.
func setGCPercent(before int) {
	if os.Getenv("GOGC") != "" {
		return
	}
	// What the GOGC of Go counts: see runtime/debug.SetGCPercent and the package runtime.
	counted := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(counted)
	used := uint64(0)
	for _, c := range counted {
		used += c.Value.Uint64()
	}
	percent := gcPercentFor(used)
	if percent != before {
		debug.SetGCPercent(percent)
	}
	// Larger than what Go packs several of into one block of memory, which would stay in use.
	runtime.AddCleanup(&[32]byte{}, setGCPercent, percent)
}

// gcPercentFor returns GOGC for a heap with so many bytes in use, in steps of 10 above gcPercent: a small change of the heap
// changes nothing.
func gcPercentFor(used uint64) int {
	return max(gcPercent, int(minGarbage*100/max(used, goHeap))/10*10)
}
