//go:build !race

package hub_test

import (
	"fmt"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// Drivers share the memory for their lists. The race detector makes it many times as long, byte by byte: make test runs it
// without. The tests of short lists run with it.
func TestLargeListIsComparedAgainAndAgain(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.drifting(registry.DriftReattach)
	var handles []string // that take 26 MiB
	for i := range 900 {
		handles = append(handles, fmt.Sprintf("%030000d", i))
	}
	w.turn(backend, fakecsi.Knobs{GainVolumes: handles})
	va := w.volume("v", driver, w.node("n", driver))
	w.start()
	w.create(va)
	w.waitForOne(va.Name, "attached", isAttached)
	w.waitListings(backend, 5) // pages, of two lists: a third would find no memory
	w.turn(backend, fakecsi.Knobs{LoseAttachments: []fakecsi.VolumeNode{{Volume: "v"}}})
	w.waitBooks(backend, "the volume is attached again", func(b fakecsi.Books) bool { return b.IsAttached("v", "id-n") })
}
