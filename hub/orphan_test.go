package hub_test

import (
	"maps"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func TestVolumeLeftAttachedIsDetachedAlsoWhenASettingChanges(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.retry(driver, 10*time.Millisecond)
	va := w.volume("v", driver, w.node("n", driver))
	w.start()
	w.create(va)
	w.waitForOne(va.Name, "attached", isAttached)
	// Its VolumeAttachment is torn away while the driver cannot detach.
	w.turn(backend, fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerUnpublishVolume, Code: codes.Internal}}})
	w.delete(va)
	w.waitBooks(backend, "a detach has failed", func(b fakecsi.Books) bool { return b.Methods[fakecsi.ControllerUnpublishVolume].Ended > 0 })
	w.setFinalizers(va.Name, "null")
	w.waitNoneLeft()
	w.set(driver, func(s *registry.Settings) { s.Workers++ })
	w.updates <- maps.Clone(w.drivers)
	w.turn(backend, fakecsi.Knobs{ClearFaults: true})
	w.waitBooks(backend, "the volume is detached", func(b fakecsi.Books) bool { return len(b.Attached) == 0 })
}
