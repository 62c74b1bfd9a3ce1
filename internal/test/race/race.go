// Package race tells tests whether the race detector is on, which makes some of them ten times as long.
package race

import "testing"

// OneRow skips t with the race detector if another row of its table has been watched: they do the same concurrent work.
func OneRow(t *testing.T, watched *bool) {
	t.Helper()
	if Detector && *watched {
		t.Skip("the race detector watches one row of a table: choose this one with -run, or run all without -race")
	}
	*watched = true
}
