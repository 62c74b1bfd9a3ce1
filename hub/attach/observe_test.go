package attach

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// bySidecar is an attachment as csi-attacher leaves it.
func bySidecar(edits ...func(*storagev1.VolumeAttachment)) *storagev1.VolumeAttachment {
	return attachment(append([]func(*storagev1.VolumeAttachment){attached, guarded, annotated(AnnotationNodeID, "id-1")}, edits...)...)
}

func unguarded(va *storagev1.VolumeAttachment) { va.Finalizers = nil }

func notedNodeID(id string) func(*storagev1.VolumeAttachment) { return annotated(AnnotationNodeID, id) }

func detachError(message string) func(*storagev1.VolumeAttachment) {
	return func(va *storagev1.VolumeAttachment) { va.Status.DetachError = &storagev1.VolumeError{Message: message} }
}

func created(at time.Time) func(*storagev1.VolumeAttachment) {
	return func(va *storagev1.VolumeAttachment) { va.CreationTimestamp = metav1.NewTime(at) }
}

func dying(at time.Time) *Volume {
	return volume(func(pv *corev1.PersistentVolume) { pv.DeletionTimestamp = ptr(metav1.NewTime(at)) })
}

var (
	noAttach        = Driver{Name: driverName, Capabilities: attaching.Capabilities, NoAttach: true}
	trivialNoAttach = Driver{Name: driverName, NoAttach: true}
)

// compared is a case of Differences.
type compared struct {
	name    string
	driver  Driver
	f       Inputs
	differs string // is part of the result; "": nothing differs
	fails   string // is part of the error; "": there is none
}

func (c compared) check(t *testing.T, op Operation) {
	t.Helper()
	differs, err := c.driver.Differences(op, c.f)
	if !strings.Contains(differs, c.differs) || (differs == "") != (c.differs == "") {
		t.Errorf("%q differs, want %q in it", differs, c.differs)
	}
	if (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
		t.Errorf("error %v, want %q in it", err, c.fails)
	}
}

func TestAttachOfAnotherAttacherIsComparedWithWhatTheHubWouldHaveDone(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	pv, node := volume(), csiNode("id-1")
	for _, tc := range []compared{
		{"attached", attaching, Inputs{VolumeAttachment: bySidecar(), PersistentVolume: pv, CSINode: node},
			"", ""},
		{"attached, once taken for lost", attaching, Inputs{VolumeAttachment: bySidecar(), PersistentVolume: pv, CSINode: node, Lost: true},
			"", ""},
		{"attached under another node ID", attaching, Inputs{VolumeAttachment: bySidecar(notedNodeID("id-0")), PersistentVolume: pv, CSINode: node},
			`node ID is "id-0", the hub would have used "id-1"`, ""},
		{"attached without a note of the node ID", attaching, Inputs{VolumeAttachment: bySidecar(func(va *storagev1.VolumeAttachment) { va.Annotations = nil }), PersistentVolume: pv, CSINode: node},
			`no node ID is noted, the hub would have used "id-1"`, ""},
		{"attached as another volume", attaching, Inputs{VolumeAttachment: bySidecar(annotated(AnnotationVolumeHandle, "vol-0")), PersistentVolume: pv, CSINode: node},
			`volume handle is "vol-0", the hub would have used "vol-1"`, ""},
		{"attached without finalizer", attaching, Inputs{VolumeAttachment: bySidecar(unguarded), PersistentVolume: pv, CSINode: node},
			`finalizer "` + finalizer + `" is missing`, ""},
		{"marked attached as of a trivial driver", attaching, Inputs{VolumeAttachment: attachment(attached), PersistentVolume: pv, CSINode: node},
			`" is missing, the hub would have added it; no node ID is noted`, ""},
		{"attached, node plugin not registered", attaching, Inputs{VolumeAttachment: bySidecar(), PersistentVolume: pv, CSINode: &storagev1.CSINode{}},
			"", `does not contain driver "` + driverName + `"`},
		{"attached, no PersistentVolume", attaching, Inputs{VolumeAttachment: bySidecar(), CSINode: node},
			"", `persistentvolume "pv-1" not found`},
		{"attached, PersistentVolume deleted since", attaching, Inputs{VolumeAttachment: bySidecar(created(noon)), PersistentVolume: dying(noon.Add(time.Hour)), CSINode: node},
			"", ""},
		{"attached, PersistentVolume deleted before", attaching, Inputs{VolumeAttachment: bySidecar(created(noon)), PersistentVolume: dying(noon.Add(-time.Hour)), CSINode: node},
			"", `persistentvolume "pv-1" is being deleted`},

		{"trivial driver, attached", trivial, Inputs{VolumeAttachment: attachment(attached)},
			"", ""},
		{"trivial driver, with a finalizer", trivial, Inputs{VolumeAttachment: bySidecar(), PersistentVolume: pv, CSINode: node},
			"the driver has no PUBLISH_UNPUBLISH_VOLUME", ""},

		{"attachRequired false, attached before", noAttach, Inputs{VolumeAttachment: bySidecar(), PersistentVolume: pv, CSINode: node},
			"would not have attached it and would detach it", ""},
		{"attachRequired false, marked attached", trivialNoAttach, Inputs{VolumeAttachment: attachment(attached)},
			"the hub would not have attached it", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := tc.f.VolumeAttachment.DeepCopy()
			tc.check(t, Attaching)
			if diff := cmp.Diff(before, tc.f.VolumeAttachment); diff != "" {
				t.Errorf("the object was changed:\n%s", diff)
			}
		})
	}
}

func TestDetachOfAnotherAttacherIsComparedWithWhatTheHubWouldHaveDone(t *testing.T) {
	pv, node := volume(), csiNode("id-1")
	for _, tc := range []compared{
		{"detached", attaching, Inputs{VolumeAttachment: bySidecar(deleted), PersistentVolume: pv, CSINode: node},
			"", ""},
		{"detached after an error", attaching, Inputs{VolumeAttachment: bySidecar(deleted, detachError("busy")), PersistentVolume: pv, CSINode: node},
			"", ""},
		{"deletion missed", attaching, Inputs{VolumeAttachment: bySidecar(), PersistentVolume: pv, CSINode: node},
			"", ""},
		{"detached from a node that is gone", attaching, Inputs{VolumeAttachment: bySidecar(deleted), PersistentVolume: pv},
			"", ""},
		{"never attached", attaching, Inputs{VolumeAttachment: attachment(guarded, deleted, notedNodeID("id-1")), PersistentVolume: pv, CSINode: node},
			"", ""},
		{"node has another ID by now", attaching, Inputs{VolumeAttachment: bySidecar(deleted, notedNodeID("id-0")), PersistentVolume: pv, CSINode: node},
			`node ID is "id-0", the hub would have used "id-1"`, ""},
		{"nothing known of the node", attaching, Inputs{VolumeAttachment: attachment(attached, guarded, deleted), PersistentVolume: pv},
			"", `csinode "node-1" not found`},
		{"nothing known of the volume", attaching, Inputs{VolumeAttachment: bySidecar(deleted), CSINode: node},
			"", `persistentvolume "pv-1" not found`},
		{"driver lost its capability", trivial, Inputs{VolumeAttachment: bySidecar(deleted), PersistentVolume: pv, CSINode: node},
			"", "no longer has PUBLISH_UNPUBLISH_VOLUME"},
		{"driver needs no attach any more", trivialNoAttach, Inputs{VolumeAttachment: bySidecar(deleted, notedNodeID("id-0")), PersistentVolume: pv, CSINode: node},
			"", ""},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.check(t, Detaching) })
	}
}

func TestWhatHubAndSidecarMakeOfAnAttachmentIsAgreed(t *testing.T) {
	t.Parallel()
	for name, attach := range map[string]func(*scene){"hub": (*scene).hubAttaches, "sidecar": (*scene).sidecarAttaches} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			attach(s)
			if differs, err := attaching.Differences(Attaching, s.inputs()); differs != "" || err != nil {
				t.Errorf("attached: %q differs, %v", differs, err)
			}
			s.delete()
			if differs, err := attaching.Differences(Detaching, s.inputs()); differs != "" || err != nil {
				t.Errorf("detached: %q differs, %v", differs, err)
			}
		})
	}
}

func TestDifferencesCarryNoSecretAndNoPublishContext(t *testing.T) {
	const secret = "s3cr3t"
	va := bySidecar(notedNodeID("id-0"), func(va *storagev1.VolumeAttachment) {
		va.Status.AttachmentMetadata = map[string]string{"password": secret}
	})
	pv := volume(func(pv *corev1.PersistentVolume) {
		pv.Spec.CSI.VolumeAttributes = map[string]string{"password": secret}
	})
	for _, f := range []Inputs{{VolumeAttachment: va, PersistentVolume: pv, CSINode: csiNode("id-1")}, {VolumeAttachment: va, PersistentVolume: pv}} {
		for _, op := range []Operation{Attaching, Detaching} {
			if differs, err := attaching.Differences(op, f); strings.Contains(fmt.Sprint(differs, err), secret) {
				t.Errorf("%q, %v has what nobody may read", differs, err)
			}
		}
	}
}
