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

func attachError(message string) func(*storagev1.VolumeAttachment) {
	return func(va *storagev1.VolumeAttachment) { va.Status.AttachError = &storagev1.VolumeError{Message: message} }
}

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
	target1         = Target{VolumeHandle: "vol-1", NodeID: "id-1"}
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
	if got.Final() != (o.want.Agreement != Pending) {
		t.Errorf("final %v with %s", got.Final(), got.Agreement)
	}
}

func TestObserveSaysWhetherTheHubWouldHaveDoneTheSame(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	pv, node := volume(), csiNode("id-1")
	for _, tc := range []observed{
		{"attached", attaching, Inputs{VolumeAttachment: bySidecar(), PersistentVolume: pv, CSINode: node},
			Observation{Attaching, Agreed, false, "", target1, nil}},
		{"attached, once taken for lost", attaching, Inputs{VolumeAttachment: bySidecar(), PersistentVolume: pv, CSINode: node, Lost: true},
			Observation{Attaching, Agreed, false, "", target1, nil}},
		{"attached under another node ID", attaching, Inputs{VolumeAttachment: bySidecar(notedNodeID("id-0")), PersistentVolume: pv, CSINode: node},
			Observation{Attaching, Differs, false, `node ID is "id-0", the hub would have used "id-1"`, target1, nil}},
		{"attached without a note of the node ID", attaching, Inputs{VolumeAttachment: bySidecar(func(va *storagev1.VolumeAttachment) { va.Annotations = nil }), PersistentVolume: pv, CSINode: node},
			Observation{Attaching, Differs, false, `no node ID is noted, the hub would have used "id-1"`, target1, nil}},
		{"attached as another volume", attaching, Inputs{VolumeAttachment: bySidecar(annotated(AnnotationVolumeHandle, "vol-0")), PersistentVolume: pv, CSINode: node},
			Observation{Attaching, Differs, false, `volume handle is "vol-0", the hub would have used "vol-1"`, target1, nil}},
		{"attached without finalizer", attaching, Inputs{VolumeAttachment: bySidecar(unguarded), PersistentVolume: pv, CSINode: node},
			Observation{Attaching, Differs, false, `finalizer "` + finalizer + `" is missing`, target1, nil}},
		{"marked attached as of a trivial driver", attaching, Inputs{VolumeAttachment: attachment(attached), PersistentVolume: pv, CSINode: node},
			Observation{Attaching, Differs, false, `" is missing, the hub would have added it; no node ID is noted`, target1, nil}},
		{"attached, node plugin not registered", attaching, Inputs{VolumeAttachment: bySidecar(), PersistentVolume: pv, CSINode: &storagev1.CSINode{}},
			Observation{Attaching, WouldHaveFailed, true, `does not contain driver "` + driverName + `"`, Target{}, nil}},
		{"attached, no PersistentVolume", attaching, Inputs{VolumeAttachment: bySidecar(), CSINode: node},
			Observation{Attaching, WouldHaveFailed, true, `persistentvolume "pv-1" not found`, Target{}, nil}},
		{"attached, PersistentVolume deleted since", attaching, Inputs{VolumeAttachment: bySidecar(created(noon)), PersistentVolume: dying(noon.Add(time.Hour)), CSINode: node},
			Observation{Attaching, Agreed, false, "", target1, nil}},
		{"attached, PersistentVolume deleted before", attaching, Inputs{VolumeAttachment: bySidecar(created(noon)), PersistentVolume: dying(noon.Add(-time.Hour)), CSINode: node},
			Observation{Attaching, WouldHaveFailed, true, `persistentvolume "pv-1" is being deleted`, Target{}, nil}},

		{"new", attaching, Inputs{VolumeAttachment: attachment(), PersistentVolume: pv, CSINode: node},
			Observation{Attaching, Pending, false, "", target1, nil}},
		{"being attached", attaching, Inputs{VolumeAttachment: attachment(guarded, notedNodeID("id-0")), PersistentVolume: pv, CSINode: node},
			Observation{Attaching, Pending, false, "", target1, nil}},
		{"new, node plugin not registered", attaching, Inputs{VolumeAttachment: attachment(), PersistentVolume: pv},
			Observation{Attaching, Pending, true, `the hub would fail: csinode "node-1" not found`, Target{}, nil}},
		{"new, PersistentVolume being deleted", attaching, Inputs{VolumeAttachment: attachment(created(noon)), PersistentVolume: dying(noon.Add(time.Hour)), CSINode: node},
			Observation{Attaching, Pending, true, `the hub would fail: persistentvolume "pv-1" is being deleted`, Target{}, nil}},
		{"not attached, for the other's error", attaching, Inputs{VolumeAttachment: attachment(guarded, attachError("quota exceeded")), PersistentVolume: pv, CSINode: node},
			Observation{Attaching, Pending, false, "the other attacher failed: quota exceeded", target1, nil}},
		{"not attached, both fail", attaching, Inputs{VolumeAttachment: attachment(attachError("no node")), PersistentVolume: pv},
			Observation{Attaching, Pending, true, "has registered no CSI driver yet; the other attacher failed: no node", Target{}, nil}},

		{"being detached", attaching, Inputs{VolumeAttachment: bySidecar(deleted), PersistentVolume: pv, CSINode: node},
			Observation{Detaching, Pending, false, "", target1, nil}},
		{"being detached, neither can", attaching, Inputs{VolumeAttachment: bySidecar(deleted, detachError("busy")), CSINode: node},
			Observation{Detaching, Pending, true, `the hub would fail: persistentvolume "pv-1" not found; the other attacher failed: busy`, Target{}, nil}},
		{"detached, held by somebody else", attaching, Inputs{VolumeAttachment: bySidecar(finalizers("a/b"), deleted), PersistentVolume: pv, CSINode: node},
			Observation{Idle, Pending, false, "", Target{}, nil}},

		{"trivial driver, new", trivial, Inputs{VolumeAttachment: attachment()},
			Observation{Attaching, Pending, false, "", Target{}, nil}},
		{"trivial driver, attached", trivial, Inputs{VolumeAttachment: attachment(attached)},
			Observation{Attaching, Agreed, false, "", Target{}, nil}},
		{"trivial driver, with a finalizer", trivial, Inputs{VolumeAttachment: bySidecar(), PersistentVolume: pv, CSINode: node},
			Observation{Attaching, Differs, false, "the driver has no PUBLISH_UNPUBLISH_VOLUME", Target{}, nil}},
		{"trivial driver, deleted", trivial, Inputs{VolumeAttachment: attachment(attached, deleted)},
			Observation{Idle, Pending, false, "", Target{}, nil}},
		{"driver that lost its capability, deleted", trivial, Inputs{VolumeAttachment: bySidecar(deleted), PersistentVolume: pv, CSINode: node},
			Observation{Detaching, Pending, true, "the hub would fail: the driver no longer has PUBLISH_UNPUBLISH_VOLUME", Target{}, nil}},

		{"attachRequired false, new", noAttach, Inputs{VolumeAttachment: attachment(), PersistentVolume: pv, CSINode: node},
			Observation{Idle, Pending, false, "the hub would not attach it", Target{}, nil}},
		{"attachRequired false, attached before", noAttach, Inputs{VolumeAttachment: bySidecar(), PersistentVolume: pv, CSINode: node},
			Observation{Detaching, Differs, false, "would not have attached it and would detach it", Target{}, nil}},
		{"attachRequired false, marked attached", trivialNoAttach, Inputs{VolumeAttachment: attachment(attached)},
			Observation{Idle, Differs, false, "the hub would not have attached it", Target{}, nil}},
		{"attachRequired false, begun", noAttach, Inputs{VolumeAttachment: attachment(guarded, notedNodeID("id-1")), PersistentVolume: pv, CSINode: node},
			Observation{Detaching, Pending, false, "", target1, nil}},
		{"attachRequired false, deleted", noAttach, Inputs{VolumeAttachment: bySidecar(deleted), PersistentVolume: pv, CSINode: node},
			Observation{Detaching, Pending, false, "", target1, nil}},
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
			Observation{Detaching, Agreed, false, "", target1, nil}},
		{"detached after an error", attaching, Inputs{VolumeAttachment: bySidecar(deleted, detachError("busy")), PersistentVolume: pv, CSINode: node},
			Observation{Detaching, Agreed, false, "", target1, nil}},
		{"deletion missed", attaching, Inputs{VolumeAttachment: bySidecar(), PersistentVolume: pv, CSINode: node},
			Observation{Detaching, Agreed, false, "", target1, nil}},
		{"detached from a node that is gone", attaching, Inputs{VolumeAttachment: bySidecar(deleted), PersistentVolume: pv},
			Observation{Detaching, Agreed, false, "", target1, nil}},
		{"never attached", attaching, Inputs{VolumeAttachment: attachment(guarded, deleted, notedNodeID("id-1")), PersistentVolume: pv, CSINode: node},
			Observation{Detaching, Agreed, false, "", target1, nil}},
		{"node has another ID by now", attaching, Inputs{VolumeAttachment: bySidecar(deleted, notedNodeID("id-0")), PersistentVolume: pv, CSINode: node},
			Observation{Detaching, Differs, false, `node ID is "id-0", the hub would have used "id-1"`, target1, nil}},
		{"nothing known of the node", attaching, Inputs{VolumeAttachment: attachment(attached, guarded, deleted), PersistentVolume: pv},
			Observation{Detaching, WouldHaveFailed, true, `csinode "node-1" not found`, Target{}, nil}},
		{"nothing known of the volume", attaching, Inputs{VolumeAttachment: bySidecar(deleted), CSINode: node},
			Observation{Detaching, WouldHaveFailed, true, `persistentvolume "pv-1" not found`, Target{}, nil}},
		{"driver lost its capability", trivial, Inputs{VolumeAttachment: bySidecar(deleted), PersistentVolume: pv, CSINode: node},
			Observation{Detaching, WouldHaveFailed, true, "no longer has PUBLISH_UNPUBLISH_VOLUME", Target{}, nil}},
		{"driver needs no attach any more", trivialNoAttach, Inputs{VolumeAttachment: bySidecar(deleted, notedNodeID("id-0")), PersistentVolume: pv, CSINode: node},
			Observation{Detaching, Agreed, false, "", Target{}, nil}},
		{"nothing was to be detached", trivial, Inputs{VolumeAttachment: attachment(attached, deleted)},
			Observation{Idle, Pending, false, "", Target{}, nil}},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.check(t, tc.driver.ObserveDetach(tc.f)) })
	}
}

func TestObservedTargetIsWhatTheHubPlansForTheSameObjectUnattached(t *testing.T) {
	withSecret := func(pv *corev1.PersistentVolume) {
		pv.Spec.CSI.ControllerPublishSecretRef = &corev1.SecretReference{Namespace: "ns", Name: "s"}
	}
	spec := wholeVolume(withSecret).Spec
	multi := attaching
	multi.Capabilities.SingleNodeMultiWriter, multi.DefaultFSType = true, "xfs"
	for _, tc := range []struct {
		name   string
		driver Driver
		f      Inputs
	}{
		{"plain", attaching, Inputs{VolumeAttachment: attachment(), PersistentVolume: volume(), CSINode: csiNode("id-1")}},
		{"another node", multi, Inputs{VolumeAttachment: attachment(), PersistentVolume: volume(), CSINode: csiNode("id-2")}},
		{"with a secret", attaching, Inputs{VolumeAttachment: attachment(), PersistentVolume: volume(withSecret), CSINode: csiNode("id-1")}},
		{"inline", attaching, Inputs{VolumeAttachment: attachment(inline(&spec)), CSINode: csiNode("id-1")}},
		{"migrated", Driver{Name: awsEBS, Capabilities: attaching.Capabilities}, Inputs{VolumeAttachment: attachment(),
			PersistentVolume: VolumeOf(migratedTo(awsEBS, nil, ebsVolume("vol-0123456789abcdef0", 0))),
			CSINode:          &storagev1.CSINode{Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: awsEBS, NodeID: "i-1"}}}}}},
		{"trivial", trivial, Inputs{VolumeAttachment: attachment()}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plan, err := tc.driver.Decide(tc.f)
			if err != nil {
				t.Fatal(err)
			}
			before := tc.driver.Observe(tc.f)
			va := tc.f.VolumeAttachment.DeepCopy()
			attached(va)
			if plan.Publish != nil {
				finalizers(Finalizer(tc.driver.Name))(va)
				notedNodeID(plan.Publish.NodeId)(va)
			}
			after := tc.driver.Observe(Inputs{VolumeAttachment: va, PersistentVolume: tc.f.PersistentVolume, CSINode: tc.f.CSINode})
			want := Observation{Operation: plan.Operation, Agreement: Agreed, Target: plan.Target, SecretRef: plan.SecretRef}
			if diff := cmp.Diff(want, after); diff != "" {
				t.Errorf("observation (-want +got):\n%s", diff)
			}
			want.Agreement = Pending
			if diff := cmp.Diff(want, before); diff != "" {
				t.Errorf("observation before (-want +got):\n%s", diff)
			}
		})
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
			if o := attaching.Observe(f); o.Operation != Detaching || o.Final() {
				t.Errorf("deleted: %+v, want a detach that is pending", o)
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
