package attach_test

import (
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

func registered(driver, nodeID string) *storagev1.CSINode {
	return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "node"},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driver, NodeID: nodeID}}}}
}

// What another attachment left attached under the new ID of a node was taken for that of the volume that is attached under
// the old one, and stayed.
func TestAttachedVolumeIsWantedOnlyWhereItIsNoted(t *testing.T) {
	attached := leftAttached(madeByPeople, "v")
	attached.DeletionTimestamp = nil
	unattached := attached.DeepCopy()
	unattached.Status.Attached = false
	unnoted := attached.DeepCopy()
	delete(unnoted.Annotations, attach.AnnotationNodeID)
	for name, tc := range map[string]struct {
		va     *storagev1.VolumeAttachment
		nodeID string
		want   bool
	}{
		"attached, where it is noted":         {attached, "id", true},
		"attached, where the node is now":     {attached, "new", false},
		"not attached, where it is noted":     {unattached, "id", true},
		"not attached, where the node is now": {unattached, "new", true},
		"attached without a note":             {unnoted, "new", true},
		"attached without a note, elsewhere":  {unnoted, "id", false},
	} {
		t.Run(name, func(t *testing.T) {
			inputs := attach.Inputs{VolumeAttachment: tc.va, CSINode: registered(blockDriver, "new")}
			may, surely := block.NamesTarget(inputs, attach.Target{VolumeHandle: "v", NodeID: tc.nodeID})
			if may != tc.want || surely != tc.want {
				t.Errorf("may be wanted: %v, surely: %v; want %v", may, surely, tc.want)
			}
		})
	}
}

// After the publish the VolumeAttachment is enough: only another node ID of the driver changes the target.
func TestPublishedVolumeIsMarkedAttachedWhateverElseIsGone(t *testing.T) {
	va := leftAttached(madeByPeople, "")
	va.DeletionTimestamp, va.Status = nil, storagev1.VolumeAttachmentStatus{}
	va.Annotations = map[string]string{attach.AnnotationNodeID: "id", attach.AnnotationVolumeHandle: "v"}
	published := attach.Target{VolumeHandle: "v", NodeID: "id"}
	for name, tc := range map[string]struct {
		node *storagev1.CSINode
		want string // node ID of the plan
	}{
		"as planned":                {registered(blockDriver, "id"), "id"},
		"another node ID":           {registered(blockDriver, "new"), "new"},
		"CSINode gone":              {nil, "id"},
		"driver not on the node":    {&storagev1.CSINode{}, "id"},
		"node ID of another driver": {registered("another.example.com", "new"), "id"},
	} {
		t.Run(name, func(t *testing.T) {
			inputs := attach.Inputs{VolumeAttachment: va, CSINode: tc.node, Published: &attach.Record{Target: published}}
			if tc.want == "new" {
				inputs.PersistentVolume = volumeOf("v", "", 0)
			}
			plan, err := block.Decide(inputs)
			if err != nil || plan.Target.NodeID != tc.want || !plan.MarkAttached || (plan.Publish == nil) != (tc.want == "id") {
				t.Errorf("plan %+v, %v; want the node ID %q", plan, err, tc.want)
			}
		})
	}
}
