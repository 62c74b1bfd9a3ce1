package hub_test

import (
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
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
	for range 20 { // which of the two is looked at first is not decided
		inVirtualTime(t, attachAfterATakeover)
	}
}

func attachAfterATakeover(v *virtual) {
	t := v.t
	v.leased()
	release := v.holdLease("another")
	v.register("n", "id-n")
	v.register("other", "id-other")
	v.volume("v")
	first := v.attachment("v", "n")
	v.create(first)
	v.start()
	v.pass(time.Second)
	v.create(v.attachment("v", "other"))
	v.pass(time.Second)
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
