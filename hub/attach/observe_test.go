package attach

import (
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

// observed is a case of Observe or ObserveDetach.
type observed struct {
	name   string
	driver Driver
	f      Inputs
	want   Observation // its Reason is part of what is said
}

func (o observed) check(t *testing.T, got Observation) {
	t.Helper()
	if !strings.Contains(got.Reason, o.want.Reason) || (got.Reason == "") != (o.want.Reason == "") {
		t.Errorf("reason %q, want %q in it", got.Reason, o.want.Reason)
	}
	got.Reason = o.want.Reason
	if diff := cmp.Diff(o.want, got); diff != "" {
		t.Errorf("observation (-want +got):\n%s", diff)
	}
}

func TestObserveSaysWhetherTheHubWouldHaveDoneTheSame(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	pv, node := volume(), csiNode("id-1")
	for _, tc := range []observed{
		{"attached", attaching, Inputs{VolumeAttachment: bySidecar(), PersistentVolume: pv, CSINode: node},
			Observation{Attaching, Agreed, ""}},
		{"attached, once taken for lost", attaching, Inputs{VolumeAttachment: bySidecar(), PersistentVolume: pv, CSINode: node, Lost: true},
			Observation{Attaching, Agreed, ""}},
		{"attached under another node ID", attaching, Inputs{VolumeAttachment: bySidecar(notedNodeID("id-0")), PersistentVolume: pv, CSINode: node},
			Observation{Attaching, Differs, `node ID is "id-0", the hub would have used "id-1"`}},
		{"attached without a note of the node ID", attaching, Inputs{VolumeAttachment: bySidecar(func(va *storagev1.VolumeAttachment) { va.Annotations = nil }), PersistentVolume: pv, CSINode: node},
			Observation{Attaching, Differs, `no node ID is noted, the hub would have used "id-1"`}},
		{"attached as another volume", attaching, Inputs{VolumeAttachment: bySidecar(annotated(AnnotationVolumeHandle, "vol-0")), PersistentVolume: pv, CSINode: node},
			Observation{Attaching, Differs, `volume handle is "vol-0", the hub would have used "vol-1"`}},
		{"attached without finalizer", attaching, Inputs{VolumeAttachment: bySidecar(unguarded), PersistentVolume: pv, CSINode: node},
			Observation{Attaching, Differs, `finalizer "` + finalizer + `" is missing`}},
		{"marked attached as of a trivial driver", attaching, Inputs{VolumeAttachment: attachment(attached), PersistentVolume: pv, CSINode: node},
			Observation{Attaching, Differs, `" is missing, the hub would have added it; no node ID is noted`}},
		{"attached, node plugin not registered", attaching, Inputs{VolumeAttachment: bySidecar(), PersistentVolume: pv, CSINode: &storagev1.CSINode{}},
			Observation{Attaching, WouldHaveFailed, `does not contain driver "` + driverName + `"`}},
		{"attached, no PersistentVolume", attaching, Inputs{VolumeAttachment: bySidecar(), CSINode: node},
			Observation{Attaching, WouldHaveFailed, `persistentvolume "pv-1" not found`}},
		{"attached, PersistentVolume deleted since", attaching, Inputs{VolumeAttachment: bySidecar(created(noon)), PersistentVolume: dying(noon.Add(time.Hour)), CSINode: node},
			Observation{Attaching, Agreed, ""}},
		{"attached, PersistentVolume deleted before", attaching, Inputs{VolumeAttachment: bySidecar(created(noon)), PersistentVolume: dying(noon.Add(-time.Hour)), CSINode: node},
			Observation{Attaching, WouldHaveFailed, `persistentvolume "pv-1" is being deleted`}},

		{"new", attaching, Inputs{VolumeAttachment: attachment(), PersistentVolume: pv, CSINode: node},
			Observation{Agreement: Pending}},
		{"being attached", attaching, Inputs{VolumeAttachment: attachment(guarded, notedNodeID("id-0")), PersistentVolume: pv, CSINode: node},
			Observation{Agreement: Pending}},

		{"being detached", attaching, Inputs{VolumeAttachment: bySidecar(deleted), PersistentVolume: pv, CSINode: node},
			Observation{Agreement: Pending}},
		{"detached, held by somebody else", attaching, Inputs{VolumeAttachment: bySidecar(finalizers("a/b"), deleted), PersistentVolume: pv, CSINode: node},
			Observation{Agreement: Pending}},

		{"trivial driver, new", trivial, Inputs{VolumeAttachment: attachment()},
			Observation{Agreement: Pending}},
		{"trivial driver, attached", trivial, Inputs{VolumeAttachment: attachment(attached)},
			Observation{Attaching, Agreed, ""}},
		{"trivial driver, with a finalizer", trivial, Inputs{VolumeAttachment: bySidecar(), PersistentVolume: pv, CSINode: node},
			Observation{Attaching, Differs, "the driver has no PUBLISH_UNPUBLISH_VOLUME"}},
		{"trivial driver, deleted", trivial, Inputs{VolumeAttachment: attachment(attached, deleted)},
			Observation{Agreement: Pending}},
		{"driver that lost its capability, deleted", trivial, Inputs{VolumeAttachment: bySidecar(deleted), PersistentVolume: pv, CSINode: node},
			Observation{Agreement: Pending}},

		{"attachRequired false, new", noAttach, Inputs{VolumeAttachment: attachment(), PersistentVolume: pv, CSINode: node},
			Observation{Agreement: Pending}},
		{"attachRequired false, attached before", noAttach, Inputs{VolumeAttachment: bySidecar(), PersistentVolume: pv, CSINode: node},
			Observation{Detaching, Differs, "would not have attached it and would detach it"}},
		{"attachRequired false, marked attached", trivialNoAttach, Inputs{VolumeAttachment: attachment(attached)},
			Observation{Idle, Differs, "the hub would not have attached it"}},
		{"attachRequired false, begun", noAttach, Inputs{VolumeAttachment: attachment(guarded, notedNodeID("id-1")), PersistentVolume: pv, CSINode: node},
			Observation{Agreement: Pending}},
		{"attachRequired false, deleted", noAttach, Inputs{VolumeAttachment: bySidecar(deleted), PersistentVolume: pv, CSINode: node},
			Observation{Agreement: Pending}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := tc.f.VolumeAttachment.DeepCopy()
			tc.check(t, tc.driver.Observe(tc.f))
			if diff := cmp.Diff(before, tc.f.VolumeAttachment); diff != "" {
				t.Errorf("the object was changed:\n%s", diff)
			}
		})
	}
}

func TestObserveDetachJudgesWhenTheObjectIsGone(t *testing.T) {
	pv, node := volume(), csiNode("id-1")
	for _, tc := range []observed{
		{"detached", attaching, Inputs{VolumeAttachment: bySidecar(deleted), PersistentVolume: pv, CSINode: node},
			Observation{Detaching, Agreed, ""}},
		{"detached after an error", attaching, Inputs{VolumeAttachment: bySidecar(deleted, detachError("busy")), PersistentVolume: pv, CSINode: node},
			Observation{Detaching, Agreed, ""}},
		{"deletion missed", attaching, Inputs{VolumeAttachment: bySidecar(), PersistentVolume: pv, CSINode: node},
			Observation{Detaching, Agreed, ""}},
		{"detached from a node that is gone", attaching, Inputs{VolumeAttachment: bySidecar(deleted), PersistentVolume: pv},
			Observation{Detaching, Agreed, ""}},
		{"never attached", attaching, Inputs{VolumeAttachment: attachment(guarded, deleted, notedNodeID("id-1")), PersistentVolume: pv, CSINode: node},
			Observation{Detaching, Agreed, ""}},
		{"node has another ID by now", attaching, Inputs{VolumeAttachment: bySidecar(deleted, notedNodeID("id-0")), PersistentVolume: pv, CSINode: node},
			Observation{Detaching, Differs, `node ID is "id-0", the hub would have used "id-1"`}},
		{"nothing known of the node", attaching, Inputs{VolumeAttachment: attachment(attached, guarded, deleted), PersistentVolume: pv},
			Observation{Detaching, WouldHaveFailed, `csinode "node-1" not found`}},
		{"nothing known of the volume", attaching, Inputs{VolumeAttachment: bySidecar(deleted), CSINode: node},
			Observation{Detaching, WouldHaveFailed, `persistentvolume "pv-1" not found`}},
		{"driver lost its capability", trivial, Inputs{VolumeAttachment: bySidecar(deleted), PersistentVolume: pv, CSINode: node},
			Observation{Detaching, WouldHaveFailed, "no longer has PUBLISH_UNPUBLISH_VOLUME"}},
		{"driver needs no attach any more", trivialNoAttach, Inputs{VolumeAttachment: bySidecar(deleted, notedNodeID("id-0")), PersistentVolume: pv, CSINode: node},
			Observation{Detaching, Agreed, ""}},
		{"nothing was to be detached", trivial, Inputs{VolumeAttachment: attachment(attached, deleted)},
			Observation{Agreement: Pending}},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.check(t, tc.driver.ObserveDetach(tc.f)) })
	}
}

func TestWhatHubAndSidecarMakeOfAnAttachmentIsAgreed(t *testing.T) {
	t.Parallel()
	for name, attach := range map[string]func(*scene){"hub": (*scene).hubAttaches, "sidecar": (*scene).sidecarAttaches} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			attach(s)
			if o := attaching.Observe(s.inputs()); o.Agreement != Agreed {
				t.Errorf("attached: %+v, want it agreed", o)
			}
			s.delete()
			f := s.inputs()
			if o := attaching.Observe(f); o.Agreement != Pending {
				t.Errorf("deleted: %+v, want it pending", o)
			}
			if o := attaching.ObserveDetach(f); o.Agreement != Agreed {
				t.Errorf("gone: %+v, want it agreed", o)
			}
		})
	}
}

func TestObservationCarriesNoSecretAndNoPublishContext(t *testing.T) {
	const secret = "s3cr3t"
	va := bySidecar(notedNodeID("id-0"), func(va *storagev1.VolumeAttachment) {
		va.Status.AttachmentMetadata = map[string]string{"password": secret}
	})
	pv := volume(func(pv *corev1.PersistentVolume) {
		pv.Spec.CSI.VolumeAttributes = map[string]string{"password": secret}
	})
	for _, f := range []Inputs{{VolumeAttachment: va, PersistentVolume: pv, CSINode: csiNode("id-1")}, {VolumeAttachment: va, PersistentVolume: pv}} {
		for _, o := range []Observation{attaching.Observe(f), attaching.ObserveDetach(f)} {
			if strings.Contains(o.Reason, secret) {
				t.Errorf("reason %q has what nobody may read", o.Reason)
			}
		}
	}
}
