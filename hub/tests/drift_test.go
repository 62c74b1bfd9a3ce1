package tests

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// drifting makes a driver whose volumes are compared with its list all the time.
func (w *world) drifting(action registry.DriftAction) (string, *fakecsi.Backend) {
	driver, backend := w.driver("d", fakecsi.Options{})
	w.set(driver, func(s *registry.Settings) { s.Drift.Interval, s.Drift.Action = 50*time.Millisecond, action })
	return driver, backend
}

// waitListings waits until the driver has been asked for its list so many times more.
func (w *world) waitListings(b *fakecsi.Backend, n int) {
	w.t.Helper()
	n += b.Books().Methods[fakecsi.ListVolumes].Begun
	w.waitBooks(b, "the volumes are listed", func(b fakecsi.Books) bool { return b.Methods[fakecsi.ListVolumes].Ended >= n })
}

func publishes(b *fakecsi.Backend) int {
	return b.Books().Methods[fakecsi.ControllerPublishVolume].Begun
}

func TestDriftIsConfirmedBeforeItIsActedOn(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.drifting(registry.DriftReattach)
	va := w.volume("v", driver, w.node("n", driver))
	w.start()
	w.create(va)
	w.waitForOne(va.Name, "attached", isAttached)
	w.waitListings(backend, 2)
	listed := backend.Books().Methods[fakecsi.ListVolumes].Begun
	w.turn(backend, fakecsi.Knobs{LoseAttachments: []fakecsi.VolumeNode{{Volume: "v"}}})
	w.waitBooks(backend, "the volume is attached again", func(b fakecsi.Books) bool { return b.IsAttached("v", "id-n") })
	if got := backend.Books().Methods[fakecsi.ListVolumes].Begun - listed; got < 2 {
		t.Errorf("acted on after %d listings, want 2", got)
	}
	w.waitListings(backend, 4)
	if got := publishes(backend); got != 2 {
		t.Errorf("%d publishes, want 2: one to attach, one to repair", got)
	}
}

func TestDriftIsOnlyReportedWhenAskedTo(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.drifting(registry.DriftReport)
	va := w.volume("v", driver, w.node("n", driver))
	w.start()
	w.create(va)
	w.waitForOne(va.Name, "attached", isAttached)
	w.turn(backend, fakecsi.Knobs{LoseAttachments: []fakecsi.VolumeNode{{Volume: "v"}}})
	w.waitListings(backend, 5)
	if got := publishes(backend); got != 1 {
		t.Errorf("%d publishes, want 1: nothing is to be repaired", got)
	}
}

// It was lost, and attached again by a call that failed afterwards, for a process that ended then.
func TestErrorOfAVolumeThatIsListedAsAttachedGoes(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.drifting(registry.DriftReattach)
	va := w.volume("v", driver, w.node("n", driver))
	stop := w.start()
	w.create(va)
	w.waitForOne(va.Name, "attached", isAttached)
	stop()
	patch := []byte(`{"status":{"attachError":{"time":"2026-01-01T00:00:00Z","message":"lost"}}}`)
	if _, err := w.plane.Clientset().StorageV1().VolumeAttachments().Patch(w.ctx, va.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	w.start()
	got := w.waitForOne(va.Name, "without an error", func(va *storagev1.VolumeAttachment) bool { return va.Status.AttachError == nil })
	if !got.Status.Attached || publishes(backend) != 1 {
		t.Errorf("attached %v after %d publishes, want it left as it is", got.Status.Attached, publishes(backend))
	}
}

// The answers to listings are made, and then held back until something has changed: first the volume that they do not have
// is attached, then its VolumeAttachment changes, twice.
func TestDriftLeavesWhatChangedMeanwhileAlone(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		listing := func(n int) { // waits until it is in flight
			t.Helper()
			for range 3600 {
				if m := v.backend.Books().Methods[fakecsi.ListVolumes]; m.Begun == n && m.InFlight.Now == 1 {
					return
				}
				v.pass(time.Second)
			}
			t.Fatalf("listing %d does not begin", n)
		}
		held := fakecsi.Knobs{ReleaseAll: true, Hang: []fakecsi.Hang{{Method: fakecsi.ListVolumes, AfterEffect: true}}}
		v.turn(held)
		v.register("n", "id-n")
		v.volume("v")
		v.start()
		listing(1)
		va := v.attachment("v", "n")
		v.create(va)
		v.pass(time.Second)
		held.LoseAttachments = []fakecsi.VolumeNode{{Volume: "v"}}
		for n := 2; n <= 3; n++ {
			v.turn(held)
			held.LoseAttachments = nil
			listing(n)
			patch := fmt.Appendf(nil, `[{"op":"add","path":"/metadata/annotations/touched","value":"%d"}]`, n)
			if _, err := v.kube.StorageV1().VolumeAttachments().Patch(t.Context(), va.Name, types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
			v.pass(time.Second)
		}
		v.turn(held)
		listing(4)
		if got := publishes(v.backend); got != 1 {
			t.Errorf("%d publishes, want 1", got)
		}
		v.turn(fakecsi.Knobs{ReleaseAll: true})
		v.pass(10 * time.Minute)
		if got := publishes(v.backend); got != 2 {
			t.Errorf("%d publishes when nothing changes any more, want 2", got)
		}
	})
}

func TestVolumeThatIsLostWhileItIsDeletedIsNotAttachedAgain(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.drifting(registry.DriftReattach)
	va := w.volume("v", driver, w.node("n", driver))
	w.start()
	w.create(va)
	w.waitForOne(va.Name, "attached", isAttached)
	w.turn(backend, fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerUnpublishVolume}}})
	w.delete(va)
	w.waitBooks(backend, "unpublish is called", func(b fakecsi.Books) bool { return b.AttachInFlight.Now == 1 })
	w.turn(backend, fakecsi.Knobs{LoseAttachments: []fakecsi.VolumeNode{{Volume: "v"}}})
	w.waitListings(backend, 3)
	w.turn(backend, fakecsi.Knobs{ReleaseAll: true})
	w.waitNoneLeft()
	if got := publishes(backend); got != 1 {
		t.Errorf("%d publishes, want 1", got)
	}
}

// Drift is found by nothing else.
func TestListingsThatFailAreLoggedAtMostEveryTenMinutes(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ListVolumes, Code: codes.Internal, Message: "no list"}}})
		lines := func() int { return strings.Count(v.log.String(), "ListVolumes failed") }
		v.pass(time.Hour)
		first, listings := lines(), v.backend.Books().Methods[fakecsi.ListVolumes].Ended
		if first != 3 || listings != 5 {
			t.Errorf("%d lines of %d listings in an hour, want 3 of 5: the first, after 14m and after 30m:\n%s", first, listings, v.log.String())
		}
		v.pass(10 * time.Hour)
		if n := lines() - first; n != 10 {
			t.Errorf("%d lines in ten hours more, want one each hour", n)
		}
	})
}
