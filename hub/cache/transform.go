package cache

import (
	"unique"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// Transform returns what the caches keep of an object. It changes the object, which the caller must
// not use any more. Informers may call it again with its own result.
func Transform(obj any) (any, error) {
	if pv, ok := obj.(*corev1.PersistentVolume); ok {
		v := attach.VolumeOf(pv)
		shareVolumeTexts(v)
		return v, nil
	}
	trim(obj)
	return obj, nil
}

// trim drops the fields of an object that the hub never reads. They are most of its bytes, and there are many
// objects.
func trim(obj any) {
	switch o := obj.(type) {
	case *storagev1.VolumeAttachment:
		trimVolumeAttachment(o)
		shareTexts(o)
	case *storagev1.CSINode:
		trimCSINode(o)
	case *storagev1.CSIDriver:
		trimMeta(&o.ObjectMeta)
	}
}

func trimMeta(m *metav1.ObjectMeta) {
	m.ManagedFields = nil
	m.OwnerReferences = nil
}

// trimVolumeAttachment keeps all annotations: a patch depends on whether there are any. It shares no texts: an Overlay
// keeps the object only until the watch reports it.
func trimVolumeAttachment(va *storagev1.VolumeAttachment) {
	written := attach.PruneManagedFields(va.ManagedFields)
	trimMeta(&va.ObjectMeta)
	va.ManagedFields = written
	va.Labels = nil
	va.Status.AttachmentMetadata = nil // written, never read
}

// shareTexts replaces texts of a VolumeAttachment that many others have too by shared copies.
func shareTexts(va *storagev1.VolumeAttachment) {
	intern(&va.Spec.Attacher)
	intern(&va.Spec.NodeName)
	internEach(va.Finalizers)
	va.Annotations = sharedAnnotations(va.Annotations)
	for i := range va.ManagedFields {
		e := &va.ManagedFields[i]
		intern(&e.Manager)
		intern(&e.Operation)
		intern(&e.APIVersion)
		intern(&e.Subresource)
	}
}

// sharedAnnotations returns a copy of annotations that shares the keys which attachers write, and the node ID. The
// map itself is not changed: it may be in the cache already.
func sharedAnnotations(annotations map[string]string) map[string]string {
	if annotations == nil {
		return nil
	}
	shared := make(map[string]string, len(annotations))
	for key, value := range annotations {
		switch key {
		case attach.AnnotationNodeID:
			key = attach.AnnotationNodeID // the constant
			intern(&value)
		case attach.AnnotationVolumeHandle:
			key = attach.AnnotationVolumeHandle
		}
		shared[key] = value
	}
	return shared
}

// shareVolumeTexts is shareTexts for a PersistentVolume.
func shareVolumeTexts(v *attach.Volume) {
	intern(&v.Driver)
	intern(&v.FSType)
	internEach(v.Finalizers)
	internEach(v.AccessModes)
	internEach(v.MountOptions)
	for i := range v.Attributes {
		intern(&v.Attributes[i].Key)
		intern(&v.Attributes[i].Value)
	}
	if ref := v.SecretRef; ref != nil {
		intern(&ref.Namespace)
		intern(&ref.Name)
	}
}

// intern replaces s by a shared copy: each object that is decoded has a copy of its own. A garbage
// collection empties the pool, so only objects that arrive between two collections share, as most
// do while a cache is filled.
func intern[T ~string](s *T) { *s = T(unique.Make(string(*s)).Value()) }

func internEach[T ~string](all []T) {
	for i := range all {
		intern(&all[i])
	}
}

func trimCSINode(node *storagev1.CSINode) {
	trimMeta(&node.ObjectMeta)
	node.Labels, node.Annotations = nil, nil
	for i := range node.Spec.Drivers {
		node.Spec.Drivers[i].TopologyKeys = nil
	}
}
