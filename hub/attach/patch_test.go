package attach_test

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
)

// A patch that is kept until it is sent must still test what it was computed from.
func TestPatchStaysAsItIsWhenTheObjectThatItWasMadeFromChanges(t *testing.T) {
	const driver, pvName = "patch.example.com", "pv"
	inputs := func() attach.Inputs {
		return attach.Inputs{
			VolumeAttachment: &storagev1.VolumeAttachment{
				ObjectMeta: metav1.ObjectMeta{Name: "va", UID: "1", Finalizers: []string{"example.com/a", "example.com/b"}, Annotations: map[string]string{"a": "b"}},
				Spec:       storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: "n", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new(pvName)}},
			},
			PersistentVolume: attach.VolumeOf(&corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: pvName, UID: "2", Finalizers: []string{"example.com/c"}},
				Spec: corev1.PersistentVolumeSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "v"}}},
			}),
			CSINode: &storagev1.CSINode{Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driver, NodeID: "id-n"}}}},
		}
	}
	decide := func(f attach.Inputs) attach.Plan {
		plan, err := attach.Driver{Name: driver, Capabilities: csiclient.Capabilities{PublishUnpublish: true}}.Decide(f)
		must(t, err)
		return plan
	}
	f := inputs()
	plan, want := decide(f), decide(inputs())
	f.VolumeAttachment.Finalizers[0], f.PersistentVolume.Finalizers[0], f.VolumeAttachment.Annotations["a"] = "changed", "changed", "changed"
	if !reflect.DeepEqual(plan.AttachmentFinalizer, want.AttachmentFinalizer) || !reflect.DeepEqual(plan.VolumeFinalizer, want.VolumeFinalizer) {
		t.Errorf("patches %+v and %+v, want %+v and %+v", plan.AttachmentFinalizer, plan.VolumeFinalizer, want.AttachmentFinalizer, want.VolumeFinalizer)
	}
}
