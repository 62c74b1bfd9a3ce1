package main

import (
	"os"
	"runtime/debug"
)

// gcPercent is Go's GOGC: the garbage, in percent of the heap in use, that starts a
// collection. Most of a hub's heap are caches that stay, so with Go's default of 100 half
// of its memory would be garbage. In a burst, 50 costs about a tenth of the throughput of
// 200; the environment variable GOGC replaces it.
const gcPercent = 50

// setGCPercent sets gcPercent, unless the environment variable GOGC is set.
func setGCPercent() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
