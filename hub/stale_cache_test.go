package hub_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
