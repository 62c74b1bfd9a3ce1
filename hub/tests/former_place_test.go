package tests

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// done are the calls for a volume that have succeeded, in order.
func done(b *fakecsi.Backend, volume string) []string {
	var calls []string
	for _, c := range b.Books().Calls {
		if c.Volume == volume && c.Code == codes.OK {
			calls = append(calls, fmt.Sprintf("%s %s", c.Method, c.Node))
		}
	}
	return calls
}

// The node ID that is noted beside the finalizer is all that another process would find the volume by.
func TestFinalizerStaysUntilTheVolumeIsDetachedWhereItWas(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	va := w.volume("v", driver, w.node("n", driver))
	stop := w.start()
	w.create(va)
	w.waitForOne(va.Name, "attached", isAttached)
	stop()
	w.renumber(va.Node, "id-new")
	w.turn(backend, fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerUnpublishVolume, Node: "id-n", Code: codes.Internal}}})
	w.retry(driver, time.Hour) // it tries once
	w.delete(va)
	stop = w.start()
	got := w.waitForOne(va.Name, "with an error", func(va *storagev1.VolumeAttachment) bool { return va.Status.DetachError != nil })
	if !attach.HasFinalizer(got.Finalizers, attach.Finalizer(driver)) {
		t.Error("the finalizer has gone before the volume is detached")
	}
	stop() // nothing is remembered
	w.turn(backend, fakecsi.Knobs{ClearFaults: true})
	w.start()
	w.waitNoneLeft()
	w.checkBooks(map[string]int{driver: 0})
	if calls := done(backend, "v"); !slices.Equal(calls[1:], []string{"ControllerUnpublishVolume id-n", "ControllerUnpublishVolume id-new"}) {
		t.Errorf("calls %v, want the old place before the new one", calls)
	}
}

// csi-attacher asks for the new ID alone, and is done: so nobody waits for ever for a driver that knows the old one no more.
func TestDetachGoesOnWhereADriverNoLongerKnowsTheOldPlace(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.retry(driver, time.Millisecond)
	va := w.volume("v", driver, w.node("n", driver))
	w.start()
	w.create(va)
	w.waitForOne(va.Name, "attached", isAttached)
	w.turn(backend, fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerUnpublishVolume, Node: "id-n", Code: codes.NotFound}}})
	w.renumber(va.Node, "id-new")
	w.delete(va)
	w.waitNoneLeft()
	w.turn(backend, fakecsi.Knobs{ClearFaults: true})
	w.waitBooks(backend, "the volume is detached at the old place", func(b fakecsi.Books) bool { return len(b.Attached) == 0 })
}

// The note of the old ID is replaced before the volume is attached under the new one.
func TestVolumeIsDetachedAtItsOldPlaceBeforeThatIsForgotten(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.turn(backend, fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Code: codes.Internal, Count: 1, AfterEffect: true}}})
	w.retry(driver, time.Hour) // only the event can make it try again
	va := w.volume("v", driver, w.node("n", driver))
	w.start()
	w.create(va)
	w.waitForOne(va.Name, "with an error", hasAttachError)
	was := backend.Books().IsAttached("v", "id-n")
	w.renumber(va.Node, "id-new")
	w.waitForOne(va.Name, "attached", isAttached)
	if calls := done(backend, "v"); !was || !slices.Equal(calls, []string{"ControllerUnpublishVolume id-n", "ControllerPublishVolume id-new"}) {
		t.Errorf("attached %v at first, calls %v; want it to be detached first", was, calls)
	}
}

// A pod waits for it, and what was is of no use to it.
func TestAttachDoesNotWaitForADriverThatNoLongerKnowsTheOldPlace(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.turn(backend, fakecsi.Knobs{Fail: []fakecsi.Fault{
		{Method: fakecsi.ControllerPublishVolume, Code: codes.Internal, Count: 1, AfterEffect: true},
		{Method: fakecsi.ControllerUnpublishVolume, Node: "id-n", Code: codes.NotFound},
	}})
	w.retry(driver, time.Hour) // only the event can make it try again
	va := w.attachment("v", driver, w.node("n", driver), testbed.PersistentVolume{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}})
	w.start()
	w.create(va)
	w.waitForOne(va.Name, "with an error", hasAttachError)
	w.renumber(va.Node, "id-new")
	w.waitForOne(va.Name, "attached", isAttached)
}
