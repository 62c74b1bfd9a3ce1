package attach

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWantedFollowsDeletionStatusAndFinalizer(t *testing.T) {
	for _, tc := range []struct {
		name   string
		driver Driver
		va     *storagev1.VolumeAttachment
		want   Operation
	}{
		{"new", attaching, attachment(), Attaching},
		{"finalizer written, not attached yet", attaching, attachment(guarded), Attaching},
		{"attached", attaching, attachment(attached, guarded, annotated(AnnotationNodeID, "n")), Idle},
		{"attached by a driver that needs no finalizer", attaching, attachment(attached), Idle},
		{"attached, finalizer taken away", attaching, attachment(attached, annotated(AnnotationNodeID, "n")), Attaching},
		{"deleted while attached", attaching, attachment(attached, guarded, deleted), Detaching},
		{"deleted while being attached", attaching, attachment(guarded, deleted), Detaching},
		{"deleted before anything was done", attaching, attachment(deleted), Idle},
		{"detached, another finalizer left", attaching, attachment(attached, deleted, finalizers("other/f")), Idle},
		{"new, trivial driver", trivial, attachment(), Attaching},
		{"attached, trivial driver", trivial, attachment(attached), Idle},
		{"deleted, trivial driver", trivial, attachment(attached, deleted), Idle},
		{"deleted, trivial driver that once attached", trivial, attachment(attached, guarded, deleted), Detaching},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.driver.RequiredOperation(tc.va); got != tc.want {
				t.Errorf("RequiredOperation: %v, want %v", got, tc.want)
			}
		})
	}
}

func TestPlanToAttachGuardsBothObjectsAndPublishes(t *testing.T) {
	pv := volume(func(pv *corev1.PersistentVolume) {
		pv.Finalizers = []string{"kubernetes.io/pv-protection"}
		pv.Spec.CSI.VolumeAttributes = map[string]string{"pool": "fast"}
		pv.Spec.CSI.FSType = "xfs"
		pv.Spec.MountOptions = []string{"noatime"}
		pv.Spec.CSI.ControllerPublishSecretRef = &corev1.SecretReference{Namespace: "ns", Name: "s"}
	})
	plan, err := attaching.Decide(Inputs{VolumeAttachment: attachment(), PersistentVolume: pv, CSINode: csiNode("id-1")})
	must(t, err)
	want := &csi.ControllerPublishVolumeRequest{
		VolumeId:      "vol-1",
		NodeId:        "id-1",
		VolumeContext: map[string]string{"pool": "fast"},
		VolumeCapability: &csi.VolumeCapability{
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "xfs", MountFlags: []string{"noatime"}}},
		},
	}
	if diff := cmp.Diff(want, plan.Publish, protocmp.Transform()); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	record := Record{Target: Target{"vol-1", "id-1"}, SecretRef: &secretRef, SecretKnown: true, Nodes: SingleNode}
	if diff := cmp.Diff(record, plan.Record); diff != "" || plan.SecretRef == nil || !plan.MarkAttached {
		t.Errorf("plan %+v: want the secret s, the status to be written, and the record (-want +got):\n%s", plan, diff)
	}
	assertPatch(t, plan.VolumeFinalizer, "pv-1", `[{"op":"test","path":"/metadata/uid","value":"pv-uid-1"},
		{"op":"test","path":"/metadata/finalizers","value":["kubernetes.io/pv-protection"]},
		{"op":"add","path":"/metadata/finalizers/-","value":"`+finalizer+`"}]`)
	assertPatch(t, plan.AttachmentFinalizer, "va-1", `[{"op":"test","path":"/metadata/uid","value":"uid-1"},
		{"op":"test","path":"/metadata/finalizers","value":null},
		{"op":"add","path":"/metadata/finalizers","value":["`+finalizer+`"]},
		{"op":"test","path":"/metadata/annotations","value":null},
		{"op":"add","path":"/metadata/annotations","value":{"`+AnnotationNodeID+`":"id-1","`+AnnotationVolumeHandle+`":"vol-1"}}]`)
}

func TestPlanWritesNothingThatIsThere(t *testing.T) {
	plan, err := attaching.Decide(Inputs{
		VolumeAttachment: attachment(guarded, annotated(AnnotationNodeID, "id-1"), annotated(AnnotationVolumeHandle, "vol-1")),
		PersistentVolume: volume(func(pv *corev1.PersistentVolume) { pv.Finalizers = []string{"a/b", finalizer} }),
		CSINode:          csiNode("id-1"),
	})
	if err != nil || plan.VolumeFinalizer != nil || plan.AttachmentFinalizer != nil {
		t.Errorf("plan %+v, %v: want no finalizer and no annotation to be written", plan, err)
	}
}

func TestPlanRewritesANodeIDThatHasChanged(t *testing.T) {
	plan, err := attaching.Decide(Inputs{
		VolumeAttachment: attachment(guarded, annotated(AnnotationNodeID, "old"), annotated(AnnotationVolumeHandle, "vol-1")),
		PersistentVolume: volume(),
		CSINode:          csiNode("new"),
	})
	must(t, err)
	assertPatch(t, plan.AttachmentFinalizer, "va-1", `[{"op":"test","path":"/metadata/uid","value":"uid-1"},
		{"op":"add","path":"/metadata/annotations/csi.alpha.kubernetes.io~1node-id","value":"new"}]`)
}

func TestPlanRestoresAFinalizerThatWasTakenAwayWithoutACall(t *testing.T) {
	plan, err := attaching.Decide(Inputs{VolumeAttachment: attachment(attached, annotated(AnnotationNodeID, "id-1"))})
	must(t, err)
	if plan.Publish != nil || plan.MarkAttached {
		t.Errorf("plan %+v: want no call and no status", plan)
	}
	assertPatch(t, plan.AttachmentFinalizer, "va-1", `[{"op":"test","path":"/metadata/uid","value":"uid-1"},
		{"op":"test","path":"/metadata/finalizers","value":null},
		{"op":"add","path":"/metadata/finalizers","value":["`+finalizer+`"]}]`)
}

func TestReadonlyIsAskedForOnlyOfDriversThatKnowIt(t *testing.T) {
	readonly := volume(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.ReadOnly = true })
	for _, can := range []bool{false, true} {
		d := attaching
		d.Capabilities.PublishReadonly = can
		plan, err := d.Decide(Inputs{VolumeAttachment: attachment(), PersistentVolume: readonly, CSINode: csiNode("id-1")})
		if err != nil || plan.Publish.Readonly != can {
			t.Errorf("PUBLISH_READONLY=%v: readonly %v, %v", can, plan.Publish.GetReadonly(), err)
		}
	}
}

func TestVolumeModeAndFSTypeDecideTheAccessType(t *testing.T) {
	block := func(pv *corev1.PersistentVolume) { pv.Spec.VolumeMode = ptr(corev1.PersistentVolumeBlock) }
	for _, tc := range []struct {
		name      string
		pv        *Volume
		defaultFS string
		want      string
	}{
		{"block", volume(block), "ext4", "block"},
		{"no file system given", volume(), "", ""},
		{"default file system", volume(), "ext4", "ext4"},
		{"file system of the volume", volume(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.FSType = "xfs" }), "ext4", "xfs"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := attaching
			d.DefaultFSType = tc.defaultFS
			plan, err := d.Decide(Inputs{VolumeAttachment: attachment(), PersistentVolume: tc.pv, CSINode: csiNode("id-1")})
			must(t, err)
			got := "block"
			if plan.Publish.VolumeCapability.GetBlock() == nil {
				got = plan.Publish.VolumeCapability.GetMount().FsType
			}
			if got != tc.want {
				t.Errorf("access type %q, want %q", got, tc.want)
			}
		})
	}
}

func TestAccessModes(t *testing.T) {
	const rwo, rox, rwx, rwop = corev1.ReadWriteOnce, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOncePod
	for _, tc := range []struct {
		modes      []corev1.PersistentVolumeAccessMode
		plain      string // without SINGLE_NODE_MULTI_WRITER
		multi      string // with it
		singleNode bool
	}{
		{[]corev1.PersistentVolumeAccessMode{rwo}, "SINGLE_NODE_WRITER", "SINGLE_NODE_MULTI_WRITER", true},
		{[]corev1.PersistentVolumeAccessMode{rwop}, "SINGLE_NODE_WRITER", "SINGLE_NODE_SINGLE_WRITER", true},
		{[]corev1.PersistentVolumeAccessMode{rox}, "MULTI_NODE_READER_ONLY", "MULTI_NODE_READER_ONLY", false},
		{[]corev1.PersistentVolumeAccessMode{rwx}, "MULTI_NODE_MULTI_WRITER", "MULTI_NODE_MULTI_WRITER", false},
		{[]corev1.PersistentVolumeAccessMode{rwx, rox, rwo}, "MULTI_NODE_MULTI_WRITER", "MULTI_NODE_MULTI_WRITER", false},
		{[]corev1.PersistentVolumeAccessMode{rwop, rwo}, "error", "error", false},
		{[]corev1.PersistentVolumeAccessMode{rox, rwo}, "error", "error", false},
		{nil, "error", "error", false},
	} {
		for multi, want := range map[bool]string{false: tc.plain, true: tc.multi} {
			d := attaching
			d.Capabilities.SingleNodeMultiWriter = multi
			plan, err := d.Decide(Inputs{
				VolumeAttachment: attachment(),
				PersistentVolume: volume(func(pv *corev1.PersistentVolume) { pv.Spec.AccessModes = tc.modes }),
				CSINode:          csiNode("id-1"),
			})
			got := "error"
			if err == nil {
				got = plan.Publish.VolumeCapability.AccessMode.Mode.String()
			}
			if got != want || (plan.Nodes == SingleNode) != tc.singleNode {
				t.Errorf("%v, multi writer %v: %s (single node %v), want %s (%v)", tc.modes, multi, got, plan.Nodes == SingleNode, want, tc.singleNode)
			}
		}
	}
}

func TestAttachSaysWhatIsMissing(t *testing.T) {
	csiSpec := wholeVolume().Spec
	for _, tc := range []struct {
		name string
		f    Inputs
		want string
	}{
		{"no CSINode, but an annotation of an earlier attach", Inputs{VolumeAttachment: attachment(annotated(AnnotationNodeID, "old")), PersistentVolume: volume()}, `csinode "node-1" not found`},
		{"driver not on the node", Inputs{VolumeAttachment: attachment(), PersistentVolume: volume(), CSINode: &storagev1.CSINode{}}, `does not contain driver "block.csi.example.com"`},
		{"no source", Inputs{VolumeAttachment: attachment(func(va *storagev1.VolumeAttachment) { va.Spec.Source = storagev1.VolumeAttachmentSource{} })}, "neither inlineVolumeSpec nor persistentVolumeName"},
		{"both sources", Inputs{VolumeAttachment: attachment(func(va *storagev1.VolumeAttachment) { va.Spec.Source.InlineVolumeSpec = &csiSpec })}, "both inlineVolumeSpec and persistentVolumeName"},
		{"inline volume that is not CSI", Inputs{VolumeAttachment: attachment(inline(&corev1.PersistentVolumeSpec{}))}, "no CSI source"},
		{"neither CSI nor migrated", Inputs{VolumeAttachment: attachment(), CSINode: csiNode("id"),
			PersistentVolume: volume(func(pv *corev1.PersistentVolume) {
				pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x"}}
			})}, "neither a CSI volume nor one that is migrated"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := attaching.Decide(tc.f)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
}

func TestDetachWithoutWhatIsGone(t *testing.T) {
	known := []func(*storagev1.VolumeAttachment){attached, guarded, deleted, annotated(AnnotationNodeID, "noted"), annotated(AnnotationVolumeHandle, "vol-noted")}
	for _, tc := range []struct {
		name string
		f    Inputs
		want Target
		err  string
	}{
		{"all there", Inputs{VolumeAttachment: attachment(attached, guarded, deleted), PersistentVolume: volume(), CSINode: csiNode("id-1")}, Target{"vol-1", "id-1"}, ""},
		{"PersistentVolume of the same name, but another volume", Inputs{VolumeAttachment: attachment(known...), PersistentVolume: volume(), CSINode: csiNode("id-1")}, Target{"vol-noted", "id-1"}, ""},
		{"node gone", Inputs{VolumeAttachment: attachment(known...), PersistentVolume: volume()}, Target{"vol-noted", "noted"}, ""},
		{"driver gone from the node", Inputs{VolumeAttachment: attachment(known...), PersistentVolume: volume(), CSINode: &storagev1.CSINode{}}, Target{"vol-noted", "noted"}, ""},
		{"PersistentVolume gone", Inputs{VolumeAttachment: attachment(known...), CSINode: csiNode("id-1")}, Target{"vol-noted", "id-1"}, ""},
		{"PersistentVolume being deleted", Inputs{VolumeAttachment: attachment(attached, guarded, deleted), CSINode: csiNode("id-1"),
			PersistentVolume: volume(func(pv *corev1.PersistentVolume) { pv.DeletionTimestamp = ptr(metav1.Now()) })}, Target{"vol-1", "id-1"}, ""},
		{"nothing noted, PersistentVolume gone", Inputs{VolumeAttachment: attachment(attached, guarded, deleted), CSINode: csiNode("id-1")}, Target{}, `persistentvolume "pv-1" not found`},
		{"nothing noted, node gone", Inputs{VolumeAttachment: attachment(attached, guarded, deleted), PersistentVolume: volume()}, Target{}, `csinode "node-1" not found`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plan, err := attaching.Decide(tc.f)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error %v, want one with %q", err, tc.err)
				}
				return
			}
			if err != nil || plan.Target != tc.want {
				t.Errorf("plan %+v, %v: want %+v", plan, err, tc.want)
			}
		})
	}
}

func TestDetachTakesOnlyTheOwnFinalizer(t *testing.T) {
	assertPatch(t, removeFinalizer(attachment(attached, deleted, finalizers("a/b", finalizer, "c/d")), finalizer), "va-1", `[{"op":"test","path":"/metadata/uid","value":"uid-1"},
		{"op":"test","path":"/metadata/finalizers/1","value":"`+finalizer+`"},
		{"op":"remove","path":"/metadata/finalizers/1"}]`)
	if patch := removeFinalizer(attachment(finalizers("a/b")), finalizer); patch != nil {
		t.Errorf("%+v, want no patch without the own finalizer", patch)
	}
}

func TestInlineVolumeIsAttachedWithoutAPersistentVolume(t *testing.T) {
	spec := wholeVolume().Spec
	va := attachment(inline(&spec))
	plan, err := attaching.Decide(Inputs{VolumeAttachment: va, CSINode: csiNode("id-1")})
	if err != nil || VolumeName(va) != "" || plan.Publish.GetVolumeId() != "vol-1" || plan.VolumeFinalizer != nil || plan.AttachmentFinalizer == nil {
		t.Errorf("plan %+v, %v: want vol-1 to be published, only the VolumeAttachment guarded", plan, err)
	}
}

func TestTrivialDriverIsMarkedAttachedOnly(t *testing.T) {
	plan, err := trivial.Decide(Inputs{VolumeAttachment: attachment()})
	if err != nil || plan.Publish != nil || plan.VolumeFinalizer != nil || plan.AttachmentFinalizer != nil || !plan.MarkAttached {
		t.Errorf("plan %+v, %v: want only the status to be written", plan, err)
	}
}

// assertPatch compares a patch with JSON text, whatever its spaces.
func assertPatch(t *testing.T, got *Patch, name, want string) {
	t.Helper()
	if got == nil {
		t.Errorf("no patch of %s, want %s", name, want)
		return
	}
	var gotOps, wantOps any
	must(t, json.Unmarshal(encode(t, got.Ops), &gotOps))
	must(t, json.Unmarshal([]byte(want), &wantOps))
	if diff := cmp.Diff(wantOps, gotOps); diff != "" || got.Name != name {
		t.Errorf("patch of %s, want %s (-want +got):\n%s", got.Name, name, diff)
	}
}

func TestVolumeMayBeWantedWhereNothingSaysOtherwise(t *testing.T) {
	here := Target{"vol-1", "id-1"}
	for _, tc := range []struct {
		name string
		f    Inputs
		may  bool
		sure bool
	}{
		{"the same volume and node", Inputs{VolumeAttachment: attachment(), PersistentVolume: volume(), CSINode: csiNode("id-1")}, true, true},
		{"another node ID", Inputs{VolumeAttachment: attachment(), PersistentVolume: volume(), CSINode: csiNode("id-2")}, false, false},
		{"another node ID, noted here", Inputs{VolumeAttachment: attachment(annotated(AnnotationNodeID, "id-1"), annotated(AnnotationVolumeHandle, "vol-1")), CSINode: csiNode("id-2")}, true, true},
		{"another volume", Inputs{VolumeAttachment: attachment(annotated(AnnotationVolumeHandle, "vol-2")), CSINode: csiNode("id-1")}, false, false},
		{"node plugin away, noted node ID", Inputs{VolumeAttachment: attachment(annotated(AnnotationNodeID, "id-1")), PersistentVolume: volume(), CSINode: &storagev1.CSINode{}}, true, true},
		{"node plugin away, nothing noted", Inputs{VolumeAttachment: attachment(), PersistentVolume: volume()}, true, false},
		{"PersistentVolume away, nothing noted", Inputs{VolumeAttachment: attachment(), CSINode: csiNode("id-1")}, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if may, sure := attaching.NamesTarget(tc.f, here); may != tc.may || sure != tc.sure {
				t.Errorf("may want it: %v, surely: %v; want %v and %v", may, sure, tc.may, tc.sure)
			}
		})
	}
}

func TestDriverThatLostItsCapabilityIsNotTakenForDetached(t *testing.T) {
	f := Inputs{VolumeAttachment: attachment(attached, guarded, deleted, annotated(AnnotationNodeID, "id-1")), PersistentVolume: volume(), CSINode: csiNode("id-1")}
	if plan, err := trivial.Decide(f); err == nil {
		t.Errorf("plan %+v: want an error, nothing proves the volume detached", plan)
	}
	finished := trivial
	finished.NoAttach = true
	if plan, err := finished.Decide(f); err != nil || plan.Operation != Detaching {
		t.Errorf("plan %+v, %v: want the finalizer to go, the CSIDriver says that nothing is to be attached", plan, err)
	}
}

// The status asks for the finalizer of each driver that a VolumeAttachment names.
func TestFinalizersOfInventedDriversTakeBoundedMemory(t *testing.T) {
	for i := range 3 * keptFinalizers {
		if got, want := Finalizer("invented."+strconv.Itoa(i)), "external-attacher/invented-"+strconv.Itoa(i); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	kept := 0
	knownFinalizers.Range(func(any, any) bool { kept++; return true })
	if kept > keptFinalizers {
		t.Errorf("%d are kept", kept)
	}
}
