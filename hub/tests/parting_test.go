package tests

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func TestVolumeOfAnAttachmentThatVanishedIsDetachedBeforeTheDriverIsLetGo(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	x := w.tap()
	w.turn(backend, fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume}}})
	va, staying := w.volume("v", driver, w.node("n", driver)), w.volume("staying", driver, w.node("m", driver))
	stop := w.start()
	w.create(va, staying)
	w.waitBooks(backend, "both publishes are called", func(b fakecsi.Books) bool { return b.AttachInFlight.Now == 2 })
	x.freeze() // the hub does not hear of the end
	w.delete(va)
	w.strip(va.Name)
	w.waitFor("one gone", func(all []*storagev1.VolumeAttachment) bool { return len(all) == 1 })
	w.turn(backend, fakecsi.Knobs{ReleaseAll: true})
	w.waitBooks(backend, "both are attached", func(b fakecsi.Books) bool { return len(b.Attached) == 2 })
	w.waitForOne(staying.Name, "attached", isAttached)
	stop()
	w.checkBooks(map[string]int{driver: 1})
	if !backend.Books().IsAttached("staying", "id-m") {
		t.Error("the other one was detached")
	}
}

func TestVolumeThatCouldNotBeDetachedIsTriedOnceMoreBeforeTheDriverIsLetGo(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.set(driver, func(s *registry.Settings) { s.Retry.Initial, s.Retry.Max = time.Hour, time.Hour })
	va := w.volume("v", driver, w.node("n", driver))
	stop := w.start()
	w.create(va)
	w.waitForOne(va.Name, "attached", isAttached)
	w.turn(backend, fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerUnpublishVolume, Code: codes.Internal}}})
	failed := func(times int) func(fakecsi.Books) bool {
		return func(b fakecsi.Books) bool {
			return b.Methods[fakecsi.ControllerUnpublishVolume].Codes[codes.Internal.String()] >= times
		}
	}
	w.delete(va) // first: a hub that is not asked to detach puts its finalizer back
	w.waitBooks(backend, "the detach has failed", failed(1))
	w.strip(va.Name)
	w.waitBooks(backend, "the detach of what was left has failed", failed(2))
	w.turn(backend, fakecsi.Knobs{ClearFaults: true})
	stop()
	w.checkBooks(map[string]int{driver: 0})
}
