package attach

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
)

var listing = Driver{Name: driverName, Capabilities: csiclient.Capabilities{PublishUnpublish: true, ListPublishedNodes: true}}

// on is a volume that is listed as published on the nodes.
func on(nodeIDs ...string) csiclient.PublishedNodes { return csiclient.PublishedNodes{IDs: nodeIDs} }

func TestDriftIsAnAttachedVolumeThatIsNotWhereItsStatusSays(t *testing.T) {
	unknown := csiclient.PublishedNodes{Unknown: true}
	for _, tc := range []struct {
		name string
		p    csiclient.Published
		want DriftKind
	}{
		{"published there", csiclient.Published{"vol-1": on("id-1")}, DriftNone},
		{"published there and elsewhere", csiclient.Published{"vol-1": on("id-2", "id-1")}, DriftNone},
		{"published nowhere", csiclient.Published{"vol-1": on()}, DriftMissing},
		{"published elsewhere only", csiclient.Published{"vol-1": on("id-2")}, DriftMissing},
		{"not listed", csiclient.Published{"vol-2": on("id-1")}, DriftMissing},
		{"nothing listed", csiclient.Published{}, DriftMissing},
		{"listed without status", csiclient.Published{"vol-1": unknown}, DriftNone},
		{"listed elsewhere, and once without status", csiclient.Published{"vol-1": {IDs: []string{"id-2"}, Unknown: true}}, DriftNone},
	} {
		t.Run(tc.name, func(t *testing.T) {
			va := attachment(attached, guarded, annotated(AnnotationNodeID, "id-1"))
			got, err := listing.Drift(Inputs{VolumeAttachment: va, PersistentVolume: volume(), CSINode: csiNode("id-1")}, tc.p)
			if err != nil || got != tc.want {
				t.Errorf("got %q, %v, want %q", got, err, tc.want)
			}
		})
	}
}

func TestOnlyWhatIsToStayAttachedCanDrift(t *testing.T) {
	without := func(edit func(*Driver)) Driver {
		d := listing
		edit(&d)
		return d
	}
	for _, tc := range []struct {
		name   string
		driver Driver
		va     *storagev1.VolumeAttachment
		want   DriftKind
	}{
		{"attached", listing, attachment(attached, guarded), DriftMissing},
		{"attached, nothing noted by whoever attached it", listing, attachment(attached), DriftMissing},
		{"not attached yet", listing, attachment(guarded), DriftNone},
		{"being deleted", listing, attachment(attached, guarded, deleted), DriftNone},
		{"detached, another finalizer left", listing, attachment(attached, deleted, finalizers("other/f")), DriftNone},
		{"driver that attaches nothing", without(func(d *Driver) { d.Capabilities.PublishUnpublish = false }), attachment(attached), DriftNone},
		{"driver that cannot say where volumes are", without(func(d *Driver) { d.Capabilities.ListPublishedNodes = false }), attachment(attached, guarded), DriftNone},
		{"driver that needs no attachments any more", without(func(d *Driver) { d.NoAttach = true }), attachment(attached, guarded), DriftNone},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := tc.driver.Drift(Inputs{VolumeAttachment: tc.va, PersistentVolume: volume(), CSINode: csiNode("id-1")},
				csiclient.Published{"vol-1": on()})
			if err != nil || got != tc.want {
				t.Errorf("got %q, %v, want %q", got, err, tc.want)
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
		want DriftKind
	}{
		{"node gone", nil, csiclient.Published{}, DriftNone},
		{"driver gone from the node", &storagev1.CSINode{}, csiclient.Published{}, DriftNone},
		{"other drivers there only", otherDriver, csiclient.Published{"vol-1": on()}, DriftNone},
		{"node replaced, volume still on the old one", csiNode("new"), csiclient.Published{"vol-1": on("old")}, DriftNone},
		{"node replaced, volume on the new one", csiNode("new"), csiclient.Published{"vol-1": on("new")}, DriftNone},
		{"node replaced, volume on neither", csiNode("new"), csiclient.Published{"vol-1": on("other")}, DriftMissing},
	} {
		t.Run(tc.name, func(t *testing.T) {
			va := attachment(attached, guarded, annotated(AnnotationNodeID, "old"))
			got, err := listing.Drift(Inputs{VolumeAttachment: va, PersistentVolume: volume(), CSINode: tc.node}, tc.p)
			if err != nil || got != tc.want {
				t.Errorf("got %q, %v, want %q", got, err, tc.want)
			}
		})
	}
}

func TestDriftOfAVolumeThatIsGoneCannotBeTold(t *testing.T) {
	got, err := listing.Drift(Inputs{VolumeAttachment: attachment(attached, guarded), CSINode: csiNode("id-1")}, csiclient.Published{})
	if got != DriftNone || err == nil || !strings.Contains(err.Error(), `persistentvolume "pv-1" not found`) {
		t.Errorf("got %q, %v", got, err)
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
func inTree(labels map[string]string) *Volume {
	return volume(func(pv *corev1.PersistentVolume) {
		pv.Labels = labels
		pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{
			GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "disk"}}
	})
}

func TestDriftOfATranslatedVolumeIsToldByItsFullHandle(t *testing.T) {
	zonal := map[string]string{corev1.LabelTopologyZone: "us-central1-a"}
	regional := map[string]string{corev1.LabelTopologyZone: "us-central1-a__us-central1-b"}
	inlined := func(handle string) *storagev1.VolumeAttachment {
		spec := wholeVolume().Spec
		spec.CSI.Driver, spec.CSI.VolumeHandle = gcePD, handle
		return attachment(attached, guarded, inline(&spec))
	}
	ofPV := attachment(attached, guarded)
	for _, tc := range []struct {
		name   string
		va     *storagev1.VolumeAttachment
		pv     *Volume
		listed string // handle that is published on the node
		want   DriftKind
	}{
		{"GCE PD of a zone", ofPV, inTree(zonal), "projects/p/zones/us-central1-a/disks/disk", DriftNone},
		{"GCE PD of a region", ofPV, inTree(regional), "projects/p/regions/us-central1/disks/disk", DriftNone},
		{"GCE PD of no known zone", ofPV, inTree(nil), "projects/p/zones/us-central1-a/disks/disk", DriftNone},
		{"GCE PD that is not there", ofPV, inTree(zonal), "projects/p/zones/us-central1-a/disks/other", DriftMissing},
		{"GCE PD of another project", ofPV, inTree(zonal), "projects/q/zones/us-central1-a/disks/disk", DriftMissing},
		{"GCE PD that lists the incomplete handle", ofPV, inTree(zonal), "projects/UNSPECIFIED/zones/us-central1-a/disks/disk", DriftMissing},
		{"inline", inlined("projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk"), nil, "projects/p/zones/us-central1-a/disks/disk", DriftNone},
		{"inline, complete", inlined("projects/q/zones/z/disks/disk"), nil, "projects/q/zones/z/disks/disk", DriftNone},
		{"inline, not there", inlined("projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk"), nil, "projects/p/zones/us-central1-a/disks/other", DriftMissing},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := listing
			d.Name = gcePD
			got, err := d.Drift(Inputs{VolumeAttachment: tc.va, PersistentVolume: tc.pv, CSINode: gceNodeWith(gceNode)},
				csiclient.Published{tc.listed: on(gceNode)})
			if err != nil || got != tc.want {
				t.Errorf("got %q, %v, want %q", got, err, tc.want)
			}
		})
	}
}

func TestHandleOfACSIVolumeIsNeverRepaired(t *testing.T) {
	const handle = "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk"
	pv := volume(func(pv *corev1.PersistentVolume) {
		pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle = gcePD, handle
		metav1.SetMetaDataAnnotation(&pv.ObjectMeta, "pv.kubernetes.io/provisioned-by", gcePD)
	})
	d := listing
	d.Name = gcePD
	got, err := d.Drift(Inputs{VolumeAttachment: attachment(attached, guarded), PersistentVolume: pv, CSINode: gceNodeWith(gceNode)},
		csiclient.Published{handle: on(gceNode)})
	if err != nil || got != DriftNone {
		t.Errorf("got %q, %v", got, err)
	}
}

// Its handle is what the driver lists, and nothing has to be repaired. Such a volume was never attached again.
func TestInlineVolumeOfADriverThatNothingIsTranslatedToDrifts(t *testing.T) {
	spec := wholeVolume().Spec
	inputs := Inputs{VolumeAttachment: attachment(attached, guarded, inline(&spec)), CSINode: csiNode("id-1")}
	for node, want := range map[string]DriftKind{"id-1": DriftNone, "id-2": DriftMissing} {
		if got, err := listing.Drift(inputs, csiclient.Published{"vol-1": on(node)}); err != nil || got != want {
			t.Errorf("published on %s: got %q, %v, want %q", node, got, err, want)
		}
	}
}

func TestHandleThatCannotBeRepairedIsNoDrift(t *testing.T) {
	inlined := func(handle string) *storagev1.VolumeAttachment {
		spec := wholeVolume().Spec
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
			d := listing
			d.Name = tc.driver
			got, err := d.Drift(Inputs{VolumeAttachment: tc.va, CSINode: tc.node}, csiclient.Published{})
			if got != DriftNone || err == nil || !strings.Contains(err.Error(), "repair volume handle") {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

// Each minute all attached volumes are compared, and the PersistentVolume of each would be decoded.
func TestWhatIsSurelyListedHasNoDriftWhateverItsPersistentVolumeIs(t *testing.T) {
	incomplete := "projects/UNSPECIFIED/zones/us-central1-a/disks/disk"
	gce := listing
	gce.Name = gcePD
	noted := func(handle, nodeID string) *storagev1.VolumeAttachment {
		return attachment(attached, guarded, annotated(AnnotationVolumeHandle, handle), annotated(AnnotationNodeID, nodeID))
	}
	recreated := volume(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "vol-2" })
	for _, tc := range []struct {
		name   string
		driver Driver
		va     *storagev1.VolumeAttachment
		p      csiclient.Published
		want   bool
	}{
		{"listed there", listing, noted("vol-1", "id-1"), csiclient.Published{"vol-1": on("id-1")}, true},
		{"listed there and elsewhere", listing, noted("vol-1", "id-1"), csiclient.Published{"vol-1": on("id-2", "id-1")}, true},
		{"listed elsewhere", listing, noted("vol-1", "id-1"), csiclient.Published{"vol-1": on("id-2")}, false},
		{"listed without nodes", listing, noted("vol-1", "id-1"), csiclient.Published{"vol-1": {Unknown: true}}, false},
		{"not listed", listing, noted("vol-1", "id-1"), csiclient.Published{}, false},
		{"no handle noted", listing, attachment(attached, guarded, annotated(AnnotationNodeID, "id-1")), csiclient.Published{"": on("id-1")}, false},
		{"no node ID noted", listing, attachment(attached, guarded, annotated(AnnotationVolumeHandle, "vol-1")), csiclient.Published{"vol-1": on("")}, false},
		{"full handle of a driver with in-tree volumes", gce, noted("projects/p/zones/us-central1-a/disks/disk", gceNode), csiclient.Published{"projects/p/zones/us-central1-a/disks/disk": on(gceNode)}, true},
		{"incomplete handle, which is listed by another name", gce, noted(incomplete, gceNode), csiclient.Published{incomplete: on(gceNode)}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := tc.driver.SurelyListed(tc.va, tc.p)
			if got != tc.want {
				t.Errorf("surely listed: %v, want %v", got, tc.want)
			}
			for _, pv := range []*Volume{nil, volume(), recreated} {
				kind, _ := tc.driver.Drift(Inputs{VolumeAttachment: tc.va, PersistentVolume: pv, CSINode: csiNode("id-1")}, tc.p)
				if got && kind != DriftNone {
					t.Errorf("drift %q of what is surely listed, with %v", kind, pv)
				}
			}
		})
	}
}
