package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
)

// audit returns what is wrong in the books of a driver with so many volumes, each
// attached once and detached once.
func audit(r behaviour, volumes int, b fakecsi.Books) []error {
	var wrong []error
	note := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf(r.short+": "+format, args...))
	}
	if b.ViolationCount > 0 {
		note("%d violations, the first one: %+v", b.ViolationCount, b.Violations[0])
	}
	if len(b.Attached) > 0 {
		note("still attached: %s", strings.Join(slices.Sorted(maps.Keys(b.Attached)), ", "))
	}
	for _, m := range attachMethods {
		book := b.Methods[m]
		// A call is made once for each need, and once more for each failure.
		if want := volumes * (1 + r.failures); book.Begun != want || book.Ended != want {
			note("%d calls of %s, of which %d have ended, want %d: %d volumes, each with %d failures before it works",
				book.Begun, m, book.Ended, want, volumes, r.failures)
		}
		if book.Changed != volumes || book.Unchanged != 0 {
			note("%d calls of %s changed something and %d did not, want %d and 0", book.Changed, m, book.Unchanged, volumes)
		}
	}
	return wrong
}
