// Package race tells tests whether the race detector is on, which makes some of them ten times as long.
package race

import "testing"

// Skip skips t with the race detector, and says why. make test runs such tests without it: WITHOUT_RACE in the Makefile, and hub/tests.
func Skip(t *testing.T, why string) {
	t.Helper()
	if Detector {
		t.Skip(why + ": make test runs it without the race detector")
	}
}

// Hours is why a world that lives for hours in virtual time is skipped.
const Hours = "an hour does the same concurrent work as a minute"

// OneRow skips t with the race detector if another row of its table has been watched: they do the same concurrent work.
func OneRow(t *testing.T, watched *bool) {
	t.Helper()
	if Detector && *watched {
		t.Skip("the race detector watches one row of a table: choose this one with -run, or run all without -race")
	}
	*watched = true
}
