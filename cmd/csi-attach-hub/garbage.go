package main

import (
	"os"
	"runtime/debug"
)

// garbage is how much of it may lie beside what is in use before it is collected, in
// percent of that. Most of a hub's heap are caches that stay: with Go's default of 100,
// half of its memory would be garbage. In a burst this costs about a tenth of the
// throughput that 200 would have: GOGC is for those who have the memory.
const garbage = 50

// collectGarbage sets that, unless the environment variable GOGC says otherwise.
func collectGarbage() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
}
