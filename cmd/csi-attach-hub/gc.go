package main

import (
	"os"
	"runtime/debug"
)

// gcPercent is Go's GOGC: how much garbage may lie beside the heap in use before it is
// collected. Most of a hub's heap are caches that stay, so Go's default of 100 would
// make half of its memory garbage. In a burst, 50 costs about a tenth of the throughput
// of 200; whoever has the memory sets GOGC.
const gcPercent = 50

// setGCPercent sets gcPercent, unless the environment variable GOGC is set.
func setGCPercent() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
