// Package race tells tests whether the race detector is on, which makes some of them ten times as long.
package race

import (
	"os"
	"testing"
)

// samples reports whether tests leave out what the race detector need not watch: it is on, and RACE_ALL is not set.
func samples() bool { return Detector && os.Getenv("RACE_ALL") == "" }

// Skip skips t with the race detector, and says why. make test runs such tests without it: WITHOUT_RACE in the Makefile, and hub/tests.
func Skip(t *testing.T, why string) {
	t.Helper()
	if samples() {
		t.Skip(why + ": make test runs it without the race detector")
	}
}

// Hours is why a world that lives for hours in virtual time is skipped.
const Hours = "an hour does the same concurrent work as a minute"

// OneRow skips t with the race detector if another row of its table has been watched: they do the same concurrent work.
func OneRow(t *testing.T, watched *bool) {
	t.Helper()
	if samples() && *watched {
		t.Skip("the race detector watches one row of a table: choose this one with -run, or run all without -race")
	}
	*watched = true
}
