package hub

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
)

// publishing is a session of a driver that is called to attach.
type publishing struct{ Session }

func (publishing) Info() csiclient.Info {
	return csiclient.Info{Capabilities: csiclient.Capabilities{PublishUnpublish: true, ListPublishedNodes: true}}
}

// A VolumeAttachment was there when the driver was asked, and is gone when it has answered.
func TestVolumeIsKeptWhereItWasAskedForOrWorkedOnWhenTheDriverWasAsked(t *testing.T) {
	d := routed(t)
	d.connectTo(publishing{})
	node := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: routedDriver, NodeID: "id"}}}}
	if err := d.cluster.Put(node, stored(guardedVolume())); err != nil {
		t.Fatal(err)
	}
	p := csiclient.Published{"handle": {IDs: []string{"id"}}}
	for name, c := range map[string]struct {
		before []*storagev1.VolumeAttachment
		worked bool
		want   string
	}{
		"nobody":    {nil, false, ""},
		"asked for": {[]*storagev1.VolumeAttachment{routedAttachment(guardedAttachment)}, false, "VolumeAttachment va may ask for it there"},
		"worked on": {nil, true, "other work on the volume has begun there"},
		"asked for not": {[]*storagev1.VolumeAttachment{routedAttachment(guardedAttachment, func(va *storagev1.VolumeAttachment) {
			va.Spec.NodeName = "other"
			va.Annotations[attach.AnnotationNodeID] = "id-2"
		})}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			found := d.findDangling(t.Context(), p, c.before, func(at attach.Target) bool { return c.worked && at == routedTarget })
			if len(found) != 1 || found[0].Kept() != c.want {
				t.Errorf("found %+v, kept because %q, want %q", found, found[0].Kept(), c.want)
			}
		})
	}
}

// The handle of an in-tree PD lacks the project, which the driver's list has.
func TestDanglingVolumeThatIsMigratedIsFoundByTheHandleOfItsPersistentVolume(t *testing.T) {
	const driver, handle = "pd.csi.storage.gke.io", "projects/UNSPECIFIED/zones/us-central1-a/disks/d"
	const listed, nodeID = "projects/p/zones/us-central1-a/disks/d", "projects/p/zones/us-central1-a/instances/n"
	d := routedAs(t, routed(t).hub.options.Kube, driver)
	d.connectTo(publishing{})
	inTree := guardedVolume(func(pv *corev1.PersistentVolume) {
		pv.Labels = map[string]string{corev1.LabelTopologyZone: "us-central1-a"}
		pv.Annotations = map[string]string{attach.AnnotationMigratedTo: driver}
		pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "d"}}
	})
	node := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driver, NodeID: nodeID}}}}
	if err := d.cluster.Put(node, stored(inTree)); err != nil {
		t.Fatal(err)
	}
	found := d.findDangling(t.Context(), csiclient.Published{listed: {IDs: []string{nodeID}}}, nil, func(attach.Target) bool { return false })
	if len(found) != 1 || found[0].Kept() != "" {
		t.Fatalf("found %+v", found)
	}
	if want := (attach.Target{VolumeHandle: handle, NodeID: nodeID}); found[0].Record().Target != want {
		t.Errorf("detached at %v, want %v", found[0].Record().Target, want)
	}
}
