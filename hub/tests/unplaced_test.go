package tests

import (
	"slices"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// Rule: a VolumeAttachment of which no handle is known is unplaced, and waits for the PersistentVolume.
func TestDetachOfAnUnknownVolumeWaitsForItsPersistentVolume(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.register("n", "id-n")
		v.attachedBySidecar("named-by-hand", "v", "id-n")
		v.start()
		v.pass(time.Second)
		v.delete(testbed.VolumeAttachment{Name: "named-by-hand"})
		v.pass(time.Hour)
		if va := v.get("named-by-hand"); va == nil || va.Status.DetachError == nil {
			t.Fatalf("VolumeAttachment %+v, want a detachError that says what is missing", va)
		}
		v.create(testbed.PersistentVolume{Name: "v", Driver: virtualDriver, Handle: "handle"})
		v.pass(time.Second)
		want := []string{"ControllerUnpublishVolume id-n"}
		if calls := done(v.backend, "handle"); v.get("named-by-hand") != nil || !slices.Equal(calls, want) {
			t.Errorf("calls %v, want %v at once; VolumeAttachment %+v", calls, want, v.get("named-by-hand"))
		}
	})
}

// Rule: the handle is that of the PersistentVolume in the cache, or else in a live read: the watch may be late.
func TestVolumeThatTheCacheDoesNotShowYetIsAttachedAtOnce(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.register("n", "id-n")
		v.start()
		v.pass(time.Second)
		v.api.HoldWatches("persistentvolumes")
		v.volume("v")
		v.create(v.attachment("v", "n"))
		v.pass(100 * time.Millisecond)
		if va := v.get("v-n"); !va.Status.Attached {
			t.Errorf("status %+v, want it attached", va.Status)
		}
		v.api.ReleaseWatches("persistentvolumes")
	})
}
