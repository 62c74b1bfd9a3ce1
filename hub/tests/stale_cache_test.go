package tests

import (
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// The watch of VolumeAttachments is behind that of PersistentVolumes when a driver is taken over: the one before has attached
// the volume, and nobody here knows of it yet.
func TestPersistentVolumeKeepsItsFinalizerUntilATakeoverKnowsAllVolumeAttachments(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.leased()
		release := v.holdLease("another")
		v.register("n", "id-n")
		v.volume("v")
		v.start()
		v.pass(time.Second)
		v.api.HoldWatches("volumeattachments")

		finalizers := []string{attach.Finalizer(virtualDriver)}
		va := v.attachment("v", "n").Build()
		va.Finalizers, va.Status.Attached = finalizers, true
		va.Annotations = map[string]string{attach.AnnotationNodeID: "id-n"}
		if _, err := v.kube.StorageV1().VolumeAttachments().Create(t.Context(), va, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		pv, err := v.kube.CoreV1().PersistentVolumes().Get(t.Context(), "v", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pv.Finalizers = finalizers
		if _, err := v.kube.CoreV1().PersistentVolumes().Update(t.Context(), pv, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		v.delete(testbed.PersistentVolume{Name: "v"})

		release()
		v.pass(10 * time.Minute)
		if !v.hasVolume("v") {
			t.Fatal("the PersistentVolume is gone while its volume is attached")
		}
		v.api.ReleaseWatches("volumeattachments")
		v.pass(time.Minute)
		if !v.hasVolume("v") {
			t.Fatal("the PersistentVolume is gone while its volume is attached, as the hub knows by now")
		}
		v.delete(v.attachment("v", "n"))
		v.pass(time.Minute)
		if v.hasVolume("v") || v.get("v-n") != nil {
			t.Errorf("PersistentVolume there: %v, VolumeAttachment there: %v; want both gone", v.hasVolume("v"), v.get("v-n") != nil)
		}
	})
}

// The watch is late at a takeover: the one before has attached the volume to a node from which it is to be detached by now.
func TestAttachAfterATakeoverWaitsForADetachThatTheCacheDoesNotShowYet(t *testing.T) {
	for name, attachIsOlder := range map[string]bool{"the attach is the older one": true, "the attach is the younger one": false} {
		t.Run(name, func(t *testing.T) { // the older one is looked at first
			inVirtualTime(t, func(v *virtual) { v.attachAfterATakeover(attachIsOlder) })
		})
	}
}

func (v *virtual) attachAfterATakeover(attachIsOlder bool) {
	t := v.t
	v.leased()
	release := v.holdLease("another")
	v.register("n", "id-n")
	v.register("other", "id-other")
	v.volume("v")
	first, second := v.attachment("v", "n"), v.attachment("v", "other")
	if attachIsOlder {
		v.create(second)
		v.pass(time.Second)
	}
	v.create(first)
	v.start()
	v.pass(time.Second)
	if !attachIsOlder {
		v.create(second)
		v.pass(time.Second)
	}
	v.api.HoldWatches("volumeattachments")
	_, err := v.kube.StorageV1().VolumeAttachments().Patch(t.Context(), first.Name, types.JSONPatchType, []byte(`[
			{"op":"add","path":"/metadata/finalizers","value":["`+attach.Finalizer(virtualDriver)+`"]},
			{"op":"add","path":"/metadata/annotations","value":{"`+attach.AnnotationNodeID+`":"id-n"}}]`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := newBackendSession(v.backend)
	if _, err := s.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: "v", NodeId: "id-n",
		VolumeCapability: &csi.VolumeCapability{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		}}); err != nil {
		t.Fatal(err)
	}
	v.delete(first)
	release()
	v.pass(time.Minute)
	if books := v.backend.Books(); books.ViolationCount > 0 || !books.IsAttached("v", "id-other") {
		t.Errorf("violations %+v, attached %v", books.Violations, books.Attached)
	}
}

// The watch is late at a takeover: somebody has taken the finalizer from the VolumeAttachment that the one before has attached, and
// deleted it. Only its last state says that the volume is attached.
func TestVolumeOfAnAttachmentThatVanishedBeforeATakeoverIsDetached(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.leased()
		release := v.holdLease("another")
		v.register("n", "id-n")
		v.volume("v")
		va := v.attachment("v", "n")
		v.create(va)
		v.attachedByAnother(va)
		v.start()
		v.pass(time.Second)
		v.api.HoldWatches("volumeattachments")
		v.stripFinalizers(va.Name)
		v.delete(va)
		release()
		v.pass(time.Minute)
		if d := v.hub.Drivers()[0]; !d.Lease.Mine {
			t.Fatalf("the driver was not taken over: %+v", d)
		}
		v.api.ReleaseWatches("volumeattachments")
		v.pass(time.Minute)
		if attached := v.backend.Books().Attached; len(attached) > 0 {
			t.Errorf("attached: %v, want it detached", attached)
		}
	})
}

// A hub that has just started knows no VolumeAttachments: the VolumeAttachment alone keeps the PersistentVolume.
func TestPersistentVolumeThatWasAttachedBeforeARestartKeepsItsFinalizer(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.register("n", "id-n")
		v.volume("v")
		va := v.attachment("v", "n")
		v.create(va)
		v.attachedByAnother(va)
		v.delete(testbed.PersistentVolume{Name: "v"})
		v.start()
		v.pass(time.Hour)
		if !v.hasVolume("v") {
			t.Fatal("the PersistentVolume is gone while its volume is attached")
		}
		v.delete(va)
		v.pass(time.Hour)
		if v.hasVolume("v") || v.get(va.Name) != nil {
			t.Errorf("PersistentVolume there: %v, VolumeAttachment there: %v; want both gone", v.hasVolume("v"), v.get(va.Name) != nil)
		}
	})
}

// The watch is late at a takeover: the one before has attached the volume for a VolumeAttachment that the cache does not show yet.
func TestDanglingVolumeIsLookedForOnlyWhenATakeoverKnowsAllVolumeAttachments(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.unexpected(registry.UnexpectedDetach)
		v.leased()
		release := v.holdLease("another")
		v.register("n", "id-n")
		v.volume("v")
		v.start()
		v.pass(time.Minute)
		v.api.HoldWatches("volumeattachments")
		va := v.attachment("v", "n")
		v.writtenByAnother(va, "id-n")
		v.attachByHand("v", "id-n")
		release()
		v.pass(time.Hour)
		if d := v.hub.Drivers()[0]; !d.Lease.Mine {
			t.Fatalf("the driver was not taken over: %+v", d)
		}
		if n, shown := v.unpublishes(), v.dangled(); n > 0 || len(shown) > 0 {
			t.Errorf("%d unpublishes, dangling %+v; want none, the VolumeAttachment asks for it", n, shown)
		}
		v.api.ReleaseWatches("volumeattachments")
		v.pass(time.Hour)
		if n, shown := v.unpublishes(), v.dangled(); n > 0 || len(shown) > 0 {
			t.Errorf("%d unpublishes, dangling %+v when the VolumeAttachment is seen", n, shown)
		}
	})
}
