package tests

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// inTree makes a volume of the in-tree GCE plugin that is migrated to its driver,
// and returns what attaches it.
func (w *world) inTree(name, driver, node string) testbed.VolumeAttachment {
	w.t.Helper()
	pv := testbed.PersistentVolume{Name: w.name(name)}.Build()
	pv.Labels = map[string]string{corev1.LabelTopologyZone: "us-central1-a"}
	pv.Annotations = map[string]string{attach.AnnotationMigratedTo: driver}
	pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: name}}
	if _, err := w.plane.Clientset().CoreV1().PersistentVolumes().Create(w.ctx, pv, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	return testbed.VolumeAttachment{Name: pv.Name, Driver: driver, Node: node, PersistentVolume: pv.Name}
}

func TestMigratedVolumeIsAttachedAndItsFinalizerGoesWithTheMigration(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{Name: "pd.csi.storage.gke.io"})
	finalizer := attach.Finalizer(driver)
	guarded := func(name string) bool { return attach.HasFinalizer(w.getVolume(name).Finalizers, finalizer) }
	volumes, err := testbed.WatchPersistentVolumes(w.ctx, w.plane.Clientset(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(volumes.Close)
	w.start()
	node := w.node("n", driver)
	back, stays := w.inTree("back", driver, node), w.inTree("stays", driver, node)
	w.create(back, stays)
	w.waitAllAttached(2)
	const handle = "projects/UNSPECIFIED/zones/us-central1-a/disks/back"
	request := backend.LastPublish(handle)
	if partition, ok := request.GetVolumeContext()["partition"]; !ok || partition != "" {
		t.Errorf("request %v, want one for %s with an empty partition", request, handle)
	}
	if got := w.get(back.Name).Annotations[attach.AnnotationVolumeHandle]; got != handle {
		t.Errorf("noted handle %q, want %q", got, handle)
	}

	w.patchVolume(back.Name, `{"metadata":{"annotations":{"`+attach.AnnotationMigratedTo+`":null}}}`)
	w.fence("fence", driver, node)
	if !guarded(back.Name) {
		t.Error("the volume has lost its finalizer while it is attached")
	}
	w.delete(back, stays)
	w.waitFor("both detached", func(all []*storagev1.VolumeAttachment) bool { return len(all) == 1 })
	err = volumes.WaitFor(w.ctx, "the volume that was handed back without the finalizer", func(all []*corev1.PersistentVolume) bool {
		for _, pv := range all {
			if pv.Name == back.Name {
				return !attach.HasFinalizer(pv.Finalizers, finalizer)
			}
		}
		return false
	})
	if err != nil {
		t.Error(err)
	}
	w.fence("last", driver, node)
	if !guarded(stays.Name) {
		t.Error("the volume that is migrated still has lost its finalizer")
	}
	w.checkBooks(map[string]int{driver: 2})
}
