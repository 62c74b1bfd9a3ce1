package tests

import (
	"maps"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
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

// It was left attached for retry.max, and for as long again, until the other got its PersistentVolume.
func TestVolumeLeftAttachedDoesNotWaitForOneWhosePersistentVolumeIsAway(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.retry(driver, 10*time.Millisecond)
	node := w.node("n", driver)
	va := w.volume("v", driver, node)
	w.start()
	w.create(va, testbed.VolumeAttachment{Name: w.name("waiting"), Driver: driver, Node: node, PersistentVolume: w.name("away")})
	w.waitForOne(va.Name, "attached", isAttached)
	w.turn(backend, fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerUnpublishVolume, Code: codes.Internal, Count: 1}},
		Hang: []fakecsi.Hang{{Method: fakecsi.ControllerUnpublishVolume}}})
	w.delete(va)
	w.waitBooks(backend, "it is being detached", func(b fakecsi.Books) bool { return b.AttachInFlight.Now == 1 })
	w.setFinalizers(va.Name, "null")
	w.waitFor("one gone", func(all []*storagev1.VolumeAttachment) bool { return len(all) == 1 })
	w.turn(backend, fakecsi.Knobs{ReleaseAll: true})
	w.waitBooks(backend, "the volume is detached", func(b fakecsi.Books) bool { return len(b.Attached) == 0 })
}
