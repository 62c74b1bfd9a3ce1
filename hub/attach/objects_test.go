package attach

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
)

const (
	driverName = "block.csi.example.com"
	finalizer  = "external-attacher/block-csi-example-com"
)

var (
	attaching = Driver{Name: driverName, Capabilities: csiclient.Capabilities{PublishUnpublish: true}}
	trivial   = Driver{Name: driverName}
)

func ptr[T any](v T) *T { return &v }

// attachment returns a new VolumeAttachment of pv-1 on node-1, changed by edits.
func attachment(edits ...func(*storagev1.VolumeAttachment)) *storagev1.VolumeAttachment {
	va := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "va-1", UID: "uid-1"},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: driverName,
			NodeName: "node-1",
			Source:   storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr("pv-1")},
		},
	}
	for _, edit := range edits {
		edit(va)
	}
	return va
}

func attached(va *storagev1.VolumeAttachment) { va.Status.Attached = true }
func guarded(va *storagev1.VolumeAttachment)  { va.Finalizers = append(va.Finalizers, finalizer) }
func deleted(va *storagev1.VolumeAttachment)  { va.DeletionTimestamp = ptr(metav1.Now()) }

func annotated(key, value string) func(*storagev1.VolumeAttachment) {
	return func(va *storagev1.VolumeAttachment) {
		metav1.SetMetaDataAnnotation(&va.ObjectMeta, key, value)
	}
}

func finalizers(names ...string) func(*storagev1.VolumeAttachment) {
	return func(va *storagev1.VolumeAttachment) { va.Finalizers = names }
}

func inline(spec *corev1.PersistentVolumeSpec) func(*storagev1.VolumeAttachment) {
	return func(va *storagev1.VolumeAttachment) {
		va.Spec.Source = storagev1.VolumeAttachmentSource{InlineVolumeSpec: spec}
	}
}

// volume returns a ReadWriteOnce PersistentVolume pv-1 with the handle vol-1.
func volume(edits ...func(*corev1.PersistentVolume)) *Volume { return VolumeOf(wholeVolume(edits...)) }

// wholeVolume is volume as the API server has it.
func wholeVolume(edits ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-1", UID: "pv-uid-1"},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: driverName, VolumeHandle: "vol-1"}},
		},
	}
	for _, edit := range edits {
		edit(pv)
	}
	return pv
}

// csiNode returns node-1 on which the driver calls itself nodeID.
func csiNode(nodeID string) *storagev1.CSINode {
	return &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1"},
		Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driverName, NodeID: nodeID}}},
	}
}
