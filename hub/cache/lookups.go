package cache

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// AttachmentsOfDriver returns the VolumeAttachments of a CSI driver.
func (c *Cluster) AttachmentsOfDriver(driver string) []*storagev1.VolumeAttachment {
	return c.attachmentsBy(byDriver, driver)
}

// AttachmentsOfVolume returns the VolumeAttachments of all drivers that name a PersistentVolume.
func (c *Cluster) AttachmentsOfVolume(name string) []*storagev1.VolumeAttachment {
	return slices.DeleteFunc(c.attachmentsBy(byVolume, volumeBucket(name)), func(va *storagev1.VolumeAttachment) bool {
		return attach.VolumeName(va) != name
	})
}

// AttachmentsOnNode returns the VolumeAttachments of all drivers that name a Kubernetes node.
func (c *Cluster) AttachmentsOnNode(node string) []*storagev1.VolumeAttachment {
	return c.attachmentsBy(byNode, node)
}

// AttachmentsAtNodeID returns the VolumeAttachments of all drivers whose note names a node ID.
func (c *Cluster) AttachmentsAtNodeID(nodeID string) []*storagev1.VolumeAttachment {
	return c.attachmentsBy(byNodeID, nodeID)
}

func (c *Cluster) attachmentsBy(index, value string) []*storagev1.VolumeAttachment {
	objs, _ := c.attachments.GetIndexer().ByIndex(index, value) // fails only for an unknown index
	return all[*storagev1.VolumeAttachment](objs)
}

// AttachmentsOfHandle returns the VolumeAttachments of a CSI driver that have a volume handle: in their note or,
// without a note, in the PersistentVolume, its last state or the inline specification. With "" it returns the
// VolumeAttachments whose handle is not known.
//
// It takes time in proportion to the VolumeAttachments of the driver. An index would take
// 300 bytes for each VolumeAttachment, and only handles of unowned publications are looked up.
func (c *Cluster) AttachmentsOfHandle(driver, handle string) []*storagev1.VolumeAttachment {
	var found []*storagev1.VolumeAttachment
	for _, va := range c.AttachmentsOfDriver(driver) {
		if c.VolumeHandle(va) == handle {
			found = append(found, va)
		}
	}
	return found
}

// VolumeHandle returns the volume handle of a VolumeAttachment: the noted handle, or else the handle of its
// PersistentVolume or inline specification, "" if it is not known.
func (c *Cluster) VolumeHandle(va *storagev1.VolumeAttachment) string {
	return attach.HandleOf(attach.Inputs{VolumeAttachment: va, PersistentVolume: c.VolumeOrDeleted(attach.VolumeName(va))})
}

// AllAttachments returns every VolumeAttachment.
func (c *Cluster) AllAttachments() []*storagev1.VolumeAttachment {
	return all[*storagev1.VolumeAttachment](c.attachments.GetStore().List())
}

// all returns the objects of a cache by their type.
func all[T any](objs []any) []T {
	typed := make([]T, len(objs))
	for i, obj := range objs {
		typed[i] = obj.(T)
	}
	return typed
}

// AttachmentsVersion returns the resourceVersion up to which the cache has all VolumeAttachments.
// ReadAttachmentsVersion returns the resourceVersion that the API server has.
func (c *Cluster) AttachmentsVersion() string { return c.attachments.LastSyncResourceVersion() }

// cached returns an object from its cache, the zero T if it is not there.
func cached[T any](informer toolscache.SharedIndexInformer, name string) T {
	obj, _, _ := informer.GetStore().GetByKey(name)
	object, _ := obj.(T)
	return object
}

// Attachment returns a VolumeAttachment from the cache, nil if it is not there.
func (c *Cluster) Attachment(name string) *storagev1.VolumeAttachment {
	return cached[*storagev1.VolumeAttachment](c.attachments, name)
}

// VolumeInUse reports whether a VolumeAttachment of any driver names a PersistentVolume.
func (c *Cluster) VolumeInUse(name string) bool {
	return len(c.AttachmentsOfVolume(name)) > 0
}

// Volume returns a PersistentVolume from the cache, nil if it is not there.
func (c *Cluster) Volume(name string) *attach.Volume {
	return cached[*attach.Volume](c.volumes, name)
}

// AllVolumes returns every PersistentVolume.
func (c *Cluster) AllVolumes() []*attach.Volume {
	return all[*attach.Volume](c.volumes.GetStore().List())
}

// SecretsOfDriver returns the Secrets that calls for the volumes of a CSI driver need, each once, sorted.
func (c *Cluster) SecretsOfDriver(driver string) []corev1.SecretReference {
	secrets := map[corev1.SecretReference]bool{}
	for _, v := range c.AllVolumes() {
		if v.Driver == driver && v.SecretRef != nil {
			secrets[*v.SecretRef] = true
		}
	}
	for _, va := range c.AttachmentsOfDriver(driver) {
		if inline := va.Spec.Source.InlineVolumeSpec; inline != nil && inline.CSI != nil && inline.CSI.ControllerPublishSecretRef != nil {
			secrets[*inline.CSI.ControllerPublishSecretRef] = true
		}
	}
	return slices.SortedFunc(maps.Keys(secrets), func(a, b corev1.SecretReference) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// NodesOfDriver returns the names of the nodes for which a driver has registered a node ID, by node ID and in no order.
func (c *Cluster) NodesOfDriver(driver string) map[string][]string {
	nodes := map[string][]string{}
	for _, obj := range c.nodes.GetStore().List() {
		node := obj.(*storagev1.CSINode)
		if id, ok := attach.NodeID(node, driver); ok {
			nodes[id] = append(nodes[id], node.Name)
		}
	}
	return nodes
}

// ReleasableVolumes returns the PersistentVolumes that are Releasable by a driver and have its finalizer.
func (c *Cluster) ReleasableVolumes(driver string) []*attach.Volume {
	objs, _ := c.volumes.GetIndexer().ByIndex(byReleasable, attach.Finalizer(driver)) // fails only for an unknown index
	return slices.DeleteFunc(all[*attach.Volume](objs), func(v *attach.Volume) bool { return !v.Releasable(driver) })
}

// CSINode returns a CSINode from the cache, nil if it is not there.
func (c *Cluster) CSINode(name string) *storagev1.CSINode {
	return cached[*storagev1.CSINode](c.nodes, name)
}

// CSIDriver returns the CSIDriver object of a driver from the cache, nil if it is not there.
func (c *Cluster) CSIDriver(driver string) *storagev1.CSIDriver {
	return cached[*storagev1.CSIDriver](c.drivers, driver)
}

// AttachRequired returns attachRequired of a driver's CSIDriver object. It returns true if the object or the
// field is missing.
func (c *Cluster) AttachRequired(driver string) bool {
	return AttachRequired(c.CSIDriver(driver))
}

// AttachRequired returns attachRequired of a CSIDriver object, which may be nil.
func AttachRequired(object *storagev1.CSIDriver) bool {
	return object == nil || object.Spec.AttachRequired == nil || *object.Spec.AttachRequired
}
