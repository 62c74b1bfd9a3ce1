package attach

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
)

func TestVolumeAttachmentAsksForWhatItMayHaveOrGetAttached(t *testing.T) {
	noted := annotated(AnnotationNodeID, "old")
	for _, tc := range []struct {
		name   string
		va     *storagev1.VolumeAttachment
		handle string
		node   *storagev1.CSINode
		want   []Target // of those of all two volumes at all three node IDs
	}{
		{"not attached yet", attachment(), "vol-1", csiNode("id-1"), []Target{{"vol-1", "id-1"}}},
		{"attached where the node was registered before", attachment(attached, guarded, noted), "vol-1", csiNode("id-1"), []Target{{"vol-1", "id-1"}, {"vol-1", "old"}}},
		{"its PersistentVolume was recreated with another handle", attachment(attached, guarded, annotated(AnnotationVolumeHandle, "vol-2")), "vol-1", csiNode("id-1"), []Target{{"vol-1", "id-1"}, {"vol-2", "id-1"}}},
		{"being deleted", attachment(attached, guarded, deleted), "vol-1", csiNode("id-1"), []Target{{"vol-1", "id-1"}}},
		{"deleted, and held by another's finalizer", attachment(deleted, finalizers("other/f")), "vol-1", csiNode("id-1"), nil},
		{"waiting for its PersistentVolume", attachment(), "", csiNode("id-1"), nil},
		{"attached, of an unknown volume", attachment(attached, guarded), "", csiNode("id-1"), []Target{{"vol-1", "id-1"}, {"vol-2", "id-1"}}},
		{"on an unknown node", attachment(guarded), "vol-1", nil, []Target{{"vol-1", "id-1"}, {"vol-1", "id-2"}, {"vol-1", "old"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			asked := listing.Asked()
			asked.Add(tc.va, tc.handle, tc.node)
			var all, got []Target
			for _, handle := range []string{"vol-1", "vol-2"} {
				for _, nodeID := range []string{"id-1", "id-2", "old"} {
					all = append(all, Target{handle, nodeID})
					if asked.By(Target{handle, nodeID}) != nil {
						got = append(got, Target{handle, nodeID})
					}
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("asked for (-want +got):\n%s", diff)
			}
			everything := csiclient.Published{"vol-1": on("id-1", "id-2", "old"), "vol-2": on("old", "id-2", "id-1")}
			unasked := slices.DeleteFunc(all, func(at Target) bool { return slices.Contains(tc.want, at) })
			if diff := cmp.Diff(unasked, asked.Unasked(everything)); diff != "" {
				t.Errorf("not asked for (-want +got):\n%s", diff)
			}
		})
	}
}

// The handle of an in-tree PD lacks the project, which the node ID has.
func TestVolumeAttachmentOfAMigratedVolumeAsksForWhatTheDriverLists(t *testing.T) {
	const handle, listed, nodeID = "projects/UNSPECIFIED/zones/z/disks/d", "projects/p/zones/z/disks/d", "projects/p/zones/z/instances/n"
	driver := Driver{Name: gcePD}
	asked := driver.Asked()
	va := attachment(attached, annotated(AnnotationNodeID, nodeID))
	va.Spec.Attacher = gcePD
	asked.Add(va, handle, nil)
	if got := asked.Unasked(csiclient.Published{listed: on(nodeID)}); len(got) > 0 {
		t.Errorf("not asked for: %v", got)
	}
}

// It has neither a note nor a CSINode, and its name is made of the handle of its PersistentVolume.
func TestVolumeAttachmentOfAMigratedVolumeOnAnUnknownNodeAsksForWhatTheDriverLists(t *testing.T) {
	const handle, listed, nodeID = "projects/UNSPECIFIED/zones/z/disks/d", "projects/p/zones/z/disks/d", "projects/p/zones/z/instances/n"
	for _, known := range []string{handle, ""} {
		asked := Driver{Name: gcePD}.Asked()
		va := attachment(attached, guarded)
		va.Spec.Attacher = gcePD
		va.Name = fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+gcePD+va.Spec.NodeName)))
		asked.Add(va, known, nil)
		if asked.By(Target{listed, nodeID}) == nil {
			t.Errorf("handle %q: not asked for", known)
		}
	}
}

func TestVolumeIsKeptForTheFirstReasonThatHolds(t *testing.T) {
	named := func(name string) *Volume {
		pv := volume()
		pv.Name = name
		return pv
	}
	d := Dangling{Claimant: "va", Worked: true, Missing: "other"}
	for _, tc := range []struct {
		without func() // takes the reason of the line above away
		want    string
	}{
		{func() {}, "no CSINode of this cluster has the node ID"},
		{func() { d.Nodes = []string{"n"} }, "no PersistentVolume of the driver in this cluster has the volume handle"},
		{func() { d.Volumes = []*Volume{named("a"), named("b")} }, "two PersistentVolumes have the volume handle: a and b"},
		{func() { d.Volumes = d.Volumes[:1] }, "VolumeAttachment va may ask for it there"},
		{func() { d.Claimant = "" }, "other work on the volume has begun there"},
		{func() { d.Worked = false }, "the driver does not report the volume on the node of VolumeAttachment other, where it is attached"},
		{func() { d.Missing = "" }, ""},
	} {
		tc.without()
		if got := d.Kept(); got != tc.want {
			t.Errorf("kept because %q, want %q", got, tc.want)
		}
	}
	d.Listed = Target{"listed", "id"}
	want := Record{Target: Target{"vol-1", "id"}, SecretKnown: true, Nodes: SingleNode}
	if diff := cmp.Diff(want, d.Record()); diff != "" || d.Node() != "n" || strings.TrimSpace(d.Node()) == "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
}
