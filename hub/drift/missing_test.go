package drift

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
)

func TestDriftIsAnAttachedVolumeThatIsNotWhereItsStatusSays(t *testing.T) {
	unknown := csiclient.PublishedNodes{Unknown: true}
	for _, tc := range []struct {
		name string
		p    csiclient.Published
		want bool
	}{
		{"published there", csiclient.Published{"vol-1": on("id-1")}, false},
		{"published there and elsewhere", csiclient.Published{"vol-1": on("id-2", "id-1")}, false},
		{"published nowhere", csiclient.Published{"vol-1": on()}, true},
		{"published elsewhere only", csiclient.Published{"vol-1": on("id-2")}, true},
		{"not listed", csiclient.Published{"vol-2": on("id-1")}, true},
		{"nothing listed", csiclient.Published{}, true},
		{"listed without status", csiclient.Published{"vol-1": unknown}, false},
		{"listed elsewhere, and once without status", csiclient.Published{"vol-1": {IDs: []string{"id-2"}, Unknown: true}}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			va := attachment(attached, guarded, annotated(attach.AnnotationNodeID, "id-1"))
			_, got := find(lister, attach.Inputs{VolumeAttachment: va, PersistentVolume: attach.VolumeOf(newVolume()), CSINode: csiNode("id-1")}, tc.p)
			if got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestOnlyWhatIsToStayAttachedCanDrift(t *testing.T) {
	without := func(edit func(*attach.Driver)) attach.Driver {
		d := lister
		edit(&d)
		return d
	}
	for _, tc := range []struct {
		name   string
		driver attach.Driver
		va     *storagev1.VolumeAttachment
		want   bool
	}{
		{"attached", lister, attachment(attached, guarded), true},
		{"attached, nothing noted by whoever attached it", lister, attachment(attached), true},
		{"not attached yet", lister, attachment(guarded), false},
		{"being deleted", lister, attachment(attached, guarded, deleted), false},
		{"detached, another finalizer left", lister, attachment(attached, deleted, finalizers("other/f")), false},
		{"driver that attaches nothing", without(func(d *attach.Driver) { d.Capabilities.PublishUnpublish = false }), attachment(attached), false},
		{"driver that needs no attachments any more", without(func(d *attach.Driver) { d.NoAttach = true }), attachment(attached, guarded), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, got := find(tc.driver, attach.Inputs{VolumeAttachment: tc.va, PersistentVolume: attach.VolumeOf(newVolume()), CSINode: csiNode("id-1")},
				csiclient.Published{"vol-1": on()})
			if got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestNothingDriftsOnANodeThatIsGone(t *testing.T) {
	otherDriver := csiNode("id-1")
	otherDriver.Spec.Drivers[0].Name = "other.csi.example.com"
	for _, tc := range []struct {
		name string
		node *storagev1.CSINode
		p    csiclient.Published
		want bool
	}{
		{"node gone", nil, csiclient.Published{}, false},
		{"driver gone from the node", &storagev1.CSINode{}, csiclient.Published{}, false},
		{"other drivers there only", otherDriver, csiclient.Published{"vol-1": on()}, false},
		{"node replaced, volume still on the old one", csiNode("new"), csiclient.Published{"vol-1": on("old")}, false},
		{"node replaced, volume on the new one", csiNode("new"), csiclient.Published{"vol-1": on("new")}, false},
		{"node replaced, volume on neither", csiNode("new"), csiclient.Published{"vol-1": on("other")}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			va := attachment(attached, guarded, annotated(attach.AnnotationNodeID, "old"))
			_, got := find(lister, attach.Inputs{VolumeAttachment: va, PersistentVolume: attach.VolumeOf(newVolume()), CSINode: tc.node}, tc.p)
			if got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// A listing has the old volume or none, and not the one that its PersistentVolume names now.
func TestVolumeThatCouldNotBeAttachedAgainIsNotMissing(t *testing.T) {
	va := attachment(attached, guarded, annotated(attach.AnnotationVolumeHandle, "vol-1"), annotated(attach.AnnotationNodeID, "id-1"))
	pv := func(edits ...func(*corev1.PersistentVolume)) *attach.Volume {
		return attach.VolumeOf(newVolume(edits...))
	}
	for name, f := range map[string]attach.Inputs{
		"its PersistentVolume is gone":             {VolumeAttachment: va, CSINode: csiNode("id-1")},
		"its PersistentVolume is being deleted":    {VolumeAttachment: va, CSINode: csiNode("id-1"), PersistentVolume: pv(func(pv *corev1.PersistentVolume) { pv.DeletionTimestamp = ptr(metav1.Now()) })},
		"its PersistentVolume was created again":   {VolumeAttachment: va, CSINode: csiNode("id-1"), PersistentVolume: pv(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "vol-2" })},
		"the driver is not registered on its node": {VolumeAttachment: va, CSINode: &storagev1.CSINode{}, PersistentVolume: pv()},
	} {
		for _, there := range []bool{false, true} {
			p := csiclient.Published{"vol-2": on()}
			if there {
				p["vol-1"] = on("id-1")
			}
			if present, missing := find(lister, f, p); present != there || missing {
				t.Errorf("%s, listed: %v: present %v, missing %v", name, there, present, missing)
			}
		}
	}
}

const (
	gcePD   = "pd.csi.storage.gke.io"
	gceNode = "projects/p/zones/us-central1-a/instances/i"
)

// gceNodeWith is node-1 on which GCE PD calls itself nodeID.
func gceNodeWith(nodeID string) *storagev1.CSINode {
	node := csiNode(nodeID)
	node.Spec.Drivers[0].Name = gcePD
	return node
}

// inTree is an in-tree GCE PD volume with the labels.
func inTree(labels map[string]string) *corev1.PersistentVolume {
	return newVolume(func(pv *corev1.PersistentVolume) {
		pv.Labels = labels
		pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{
			GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "disk"}}
	})
}

func TestDriftOfATranslatedVolumeIsToldByItsFullHandle(t *testing.T) {
	zonal := map[string]string{corev1.LabelTopologyZone: "us-central1-a"}
	regional := map[string]string{corev1.LabelTopologyZone: "us-central1-a__us-central1-b"}
	inlined := func(handle string) *storagev1.VolumeAttachment {
		spec := newVolume().Spec
		spec.CSI.Driver, spec.CSI.VolumeHandle = gcePD, handle
		return attachment(attached, guarded, inline(&spec))
	}
	ofPV := attachment(attached, guarded)
	for _, tc := range []struct {
		name   string
		va     *storagev1.VolumeAttachment
		pv     *corev1.PersistentVolume
		listed string // handle that is published on the node
		want   bool
	}{
		{"GCE PD of a zone", ofPV, inTree(zonal), "projects/p/zones/us-central1-a/disks/disk", false},
		{"GCE PD of a region", ofPV, inTree(regional), "projects/p/regions/us-central1/disks/disk", false},
		{"GCE PD of no known zone", ofPV, inTree(nil), "projects/p/zones/us-central1-a/disks/disk", false},
		{"GCE PD that is not there", ofPV, inTree(zonal), "projects/p/zones/us-central1-a/disks/other", true},
		{"GCE PD of another project", ofPV, inTree(zonal), "projects/q/zones/us-central1-a/disks/disk", true},
		{"GCE PD that lists the incomplete handle", ofPV, inTree(zonal), "projects/UNSPECIFIED/zones/us-central1-a/disks/disk", true},
		{"inline", inlined("projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk"), nil, "projects/p/zones/us-central1-a/disks/disk", false},
		{"inline, complete", inlined("projects/q/zones/z/disks/disk"), nil, "projects/q/zones/z/disks/disk", false},
		{"inline, not there", inlined("projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk"), nil, "projects/p/zones/us-central1-a/disks/other", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := lister
			d.Name = gcePD
			_, got := find(d, attach.Inputs{VolumeAttachment: tc.va, PersistentVolume: attach.VolumeOf(tc.pv), CSINode: gceNodeWith(gceNode)},
				csiclient.Published{tc.listed: on(gceNode)})
			if got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// Its handle is what the driver lists, and nothing has to be repaired. Such a volume was never attached again.
func TestInlineVolumeOfADriverThatNothingIsTranslatedToDrifts(t *testing.T) {
	spec := newVolume().Spec
	inputs := attach.Inputs{VolumeAttachment: attachment(attached, guarded, inline(&spec)), CSINode: csiNode("id-1")}
	for node, want := range map[string]bool{"id-1": false, "id-2": true} {
		if _, got := find(lister, inputs, csiclient.Published{"vol-1": on(node)}); got != want {
			t.Errorf("published on %s: got %v, want %v", node, got, want)
		}
	}
}

func TestHandleThatCannotBeRepairedIsNoDrift(t *testing.T) {
	inlined := func(handle string) *storagev1.VolumeAttachment {
		spec := newVolume().Spec
		spec.CSI.VolumeHandle = handle
		return attachment(attached, guarded, inline(&spec))
	}
	unspecified := inlined("projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk")
	for _, tc := range []struct {
		name   string
		driver string
		node   *storagev1.CSINode
		va     *storagev1.VolumeAttachment
	}{
		{"handle out of form", gcePD, gceNodeWith(gceNode), inlined("disk")},
		{"node ID out of form", gcePD, gceNodeWith("i"), unspecified},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := lister
			d.Name = tc.driver
			if present, missing := find(d, attach.Inputs{VolumeAttachment: tc.va, CSINode: tc.node}, csiclient.Published{}); present || missing {
				t.Errorf("present %v, missing %v", present, missing)
			}
		})
	}
}
