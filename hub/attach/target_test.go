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

// What another claim left attached under the new ID of a node was taken for that of the volume that is attached under
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
			may, surely := block.ClaimsTarget(inputs, attach.Target{VolumeHandle: "v", NodeID: tc.nodeID})
			if may != tc.want || surely != tc.want {
				t.Errorf("may be wanted: %v, surely: %v; want %v", may, surely, tc.want)
			}
		})
	}
}

func TestTargetIsOutdatedOnlyByAnotherNodeIDOfTheDriver(t *testing.T) {
	va := leftAttached(madeByPeople, "")
	va.DeletionTimestamp, va.Status = nil, storagev1.VolumeAttachmentStatus{}
	plan, err := block.Decide(attach.Inputs{VolumeAttachment: va, PersistentVolume: volumeOf("v", "", 0), CSINode: registered(blockDriver, "id")})
	if err != nil {
		t.Fatal(err)
	}
	withoutCall, err := attach.Driver{Name: blockDriver}.Decide(attach.Inputs{VolumeAttachment: va})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		plan attach.Plan
		node *storagev1.CSINode
		want bool
	}{
		"as planned":                  {plan, registered(blockDriver, "id"), true},
		"another node ID":             {plan, registered(blockDriver, "new"), false},
		"CSINode gone":                {plan, nil, true},
		"driver not on the node":      {plan, &storagev1.CSINode{}, true},
		"node ID of another driver":   {plan, registered("another.example.com", "new"), true},
		"driver that needs no attach": {withoutCall, registered(blockDriver, "new"), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := block.IsCurrent(tc.plan, tc.node); got != tc.want {
				t.Errorf("current: %v, want %v", got, tc.want)
			}
		})
	}
}
