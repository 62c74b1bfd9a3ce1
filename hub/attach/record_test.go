package attach

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// secretRef is the Secret of publishes of a volume with withSecret.
var secretRef = corev1.SecretReference{Namespace: "ns", Name: "s"}

func withSecret(pv *corev1.PersistentVolume) {
	pv.Spec.CSI.ControllerPublishSecretRef = secretRef.DeepCopy()
}

func TestRecordedIsWhereANodeIDIsNotedBesideAFinalizerOrAStatusThatSaysAttached(t *testing.T) {
	noted := annotated(AnnotationNodeID, "id-noted")
	handleNoted := annotated(AnnotationVolumeHandle, "vol-1")
	for name, c := range map[string]struct {
		va   *storagev1.VolumeAttachment
		pv   *Volume
		want Record // zero: none
	}{
		"finalizer": {attachment(guarded, noted, handleNoted), volume(),
			Record{Target: Target{"vol-1", "id-noted"}, SecretKnown: true, Nodes: SingleNode}},
		"attached, finalizer taken": {attachment(attached, noted, handleNoted), volume(),
			Record{Target: Target{"vol-1", "id-noted"}, SecretKnown: true, Nodes: SingleNode}},
		"being deleted": {attachment(guarded, noted, handleNoted, deleted), volume(),
			Record{Target: Target{"vol-1", "id-noted"}, SecretKnown: true, Nodes: SingleNode}},
		"with a secret, many nodes": {attachment(guarded, noted, handleNoted), volume(withSecret, modes(corev1.ReadWriteMany)),
			Record{Target: Target{"vol-1", "id-noted"}, SecretRef: &secretRef, SecretKnown: true, Nodes: MultiNode}},
		"by csi-attacher": {attachment(guarded, noted), volume(),
			Record{Target: Target{"vol-1", "id-noted"}, SecretKnown: true, Nodes: SingleNode}},
		"inline": {attachment(guarded, noted, inline(&wholeVolume(withSecret).Spec)), nil,
			Record{Target: Target{"vol-1", "id-noted"}, SecretRef: &secretRef, SecretKnown: true, Nodes: SingleNode}},
		"PersistentVolume gone": {attachment(guarded, noted, handleNoted), nil,
			Record{Target: Target{"vol-1", "id-noted"}}},
		"by csi-attacher, PersistentVolume gone": {attachment(guarded, noted), nil, Record{}},
		"note alone":                             {attachment(noted, handleNoted), volume(), Record{}},
		"finalizer alone":                        {attachment(guarded), volume(), Record{}},
		"finalizer of another driver":            {attachment(finalizers("external-attacher/other"), noted, handleNoted), volume(), Record{}},
		"new":                                    {attachment(), volume(), Record{}},
	} {
		t.Run(name, func(t *testing.T) {
			inputs := Inputs{VolumeAttachment: c.va, PersistentVolume: c.pv, CSINode: csiNode("id-now")}
			for which, recorded := range map[string]func(Inputs) (Record, bool){"Recorded": attaching.Recorded, "LastRecorded": attaching.LastRecorded} {
				got, ok := recorded(inputs)
				if !ok {
					got = Record{}
				}
				if diff := cmp.Diff(c.want, got); diff != "" || ok != (c.want != Record{}) {
					t.Errorf("%s (-want +got):\n%s", which, diff)
				}
			}
		})
	}
}

// The PersistentVolume was deleted and made again with another handle.
func TestRecordedHandleIsTheNotedOneAndNotThatOfANamesake(t *testing.T) {
	va := attachment(guarded, annotated(AnnotationNodeID, "id-1"), annotated(AnnotationVolumeHandle, "vol-1"))
	got, ok := attaching.Recorded(Inputs{VolumeAttachment: va, PersistentVolume: volume(handle("vol-2"), modes(corev1.ReadWriteMany))})
	if want := (Target{"vol-1", "id-1"}); !ok || got.Target != want || got.Nodes != UnknownNodes {
		t.Errorf("%+v, %v; want %+v with an unknown mode", got, ok, want)
	}
}

// A csi-attacher's write was meant for an earlier object of the name: nothing but the status tells of the call.
func TestLastStateThatSaysAttachedWithoutFinalizerAndNoteRecordsTheNodeIDOfNow(t *testing.T) {
	lost := Driver{Name: driverName} // the capability, or it never attached anything
	another := csiNode("id-now")
	another.Spec.Drivers[0].Name = "another.example.com"
	for name, c := range map[string]struct {
		d    Driver
		va   *storagev1.VolumeAttachment
		pv   *Volume
		node *storagev1.CSINode
		want Record // zero: none
	}{
		"attached": {attaching, attachment(attached), volume(withSecret), csiNode("id-now"),
			Record{Target: Target{"vol-1", "id-now"}, SecretRef: &secretRef, SecretKnown: true}},
		"not attached":              {attaching, attachment(), volume(), csiNode("id-now"), Record{}},
		"driver without calls":      {lost, attachment(attached), volume(), csiNode("id-now"), Record{}},
		"PersistentVolume gone":     {attaching, attachment(attached), nil, csiNode("id-now"), Record{}},
		"CSINode gone":              {attaching, attachment(attached), volume(), nil, Record{}},
		"driver gone from the node": {attaching, attachment(attached), volume(), another, Record{}},
		"registered without an ID":  {attaching, attachment(attached), volume(), csiNode(""), Record{}},
		"no handle":                 {attaching, attachment(attached), volume(handle("")), csiNode("id-now"), Record{}},
	} {
		t.Run(name, func(t *testing.T) {
			inputs := Inputs{VolumeAttachment: c.va, PersistentVolume: c.pv, CSINode: c.node}
			got, ok := c.d.LastRecorded(inputs)
			if !ok {
				got = Record{}
			}
			got.Nodes = UnknownNodes // does not matter
			if diff := cmp.Diff(c.want, got); diff != "" || ok != (c.want != Record{}) {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if r, ok := c.d.Recorded(inputs); ok {
				t.Errorf("an object that is there records %+v", r)
			}
		})
	}
}
