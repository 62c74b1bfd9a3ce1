package cache

import (
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// writtenAttachment is an attached VolumeAttachment with all that the API server sends.
func writtenAttachment(volume, driver string) *storagev1.VolumeAttachment {
	finalizer := attach.Finalizer(driver)
	at := metav1.Now()
	entry := func(manager, subresource, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "storage.k8s.io/v1",
			Time: &at, FieldsType: "FieldsV1", Subresource: subresource, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "csi-" + volume, UID: types.UID("uid-" + volume), ResourceVersion: "12345", CreationTimestamp: at,
			Finalizers:  []string{finalizer},
			Annotations: map[string]string{attach.AnnotationNodeID: "i-0123456789", attach.AnnotationVolumeHandle: volume},
			ManagedFields: []metav1.ManagedFieldsEntry{
				entry("kube-controller-manager", "", `{"f:spec":{"f:attacher":{},"f:nodeName":{},"f:source":{"f:persistentVolumeName":{}}}}`),
				entry(attach.FieldManager, "", `{"f:metadata":{"f:annotations":{".":{},"f:`+attach.AnnotationVolumeHandle+`":{},"f:`+attach.AnnotationNodeID+`":{}},"f:finalizers":{".":{},"v:\"`+finalizer+`\"":{}}}}`),
				entry(attach.FieldManager, "status", `{"f:status":{"f:attached":{},"f:attachmentMetadata":{".":{},"f:devicePath":{}}}}`),
			}},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: "node-5",
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}},
		Status: storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{"devicePath": "/dev/xvda"}},
	}
}

func BenchmarkTrimVolumeAttachment(b *testing.B) {
	whole := writtenAttachment("pvc-1", "driver-1.csi.example.com")
	b.ReportAllocs()
	for b.Loop() {
		va := *whole
		trim(&va)
	}
}
