package cache

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// AttachmentsOfDriver returns the VolumeAttachments of a CSI driver.
func (c *Cluster) AttachmentsOfDriver(driver string) []*storagev1.VolumeAttachment {
	return c.attachmentsBy(byDriver, driver)
}

// AttachmentsOfVolume returns the VolumeAttachments of all drivers that name a PersistentVolume.
func (c *Cluster) AttachmentsOfVolume(name string) []*storagev1.VolumeAttachment {
	return c.attachmentsBy(byVolume, name)
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
	objs, err := c.attachments.GetIndexer().ByIndex(index, value)
	if err != nil {
		return nil // there is no such index: New has made them all
	}
	return asAttachments(objs)
}

// AllAttachments returns every VolumeAttachment.
func (c *Cluster) AllAttachments() []*storagev1.VolumeAttachment {
	return asAttachments(c.attachments.GetStore().List())
}

func asAttachments(objs []any) []*storagev1.VolumeAttachment {
	vas := make([]*storagev1.VolumeAttachment, len(objs))
	for i, obj := range objs {
		vas[i] = obj.(*storagev1.VolumeAttachment)
	}
	return vas
}

// CountByDriver returns the number of VolumeAttachments of each CSI driver that has any.
func (c *Cluster) CountByDriver() map[string]int {
	counts := map[string]int{}
	for _, driver := range c.attachments.GetIndexer().ListIndexFuncValues(byDriver) {
		keys, _ := c.attachments.GetIndexer().IndexKeys(byDriver, driver)
		if len(keys) > 0 {
			counts[driver] = len(keys)
		}
	}
	return counts
}

// AttachmentsVersion returns the resourceVersion up to which the cache has all VolumeAttachments.
// ReadAttachmentsVersion returns that of the API server.
func (c *Cluster) AttachmentsVersion() string { return c.attachments.LastSyncResourceVersion() }

// Attachment returns a VolumeAttachment from the cache, nil if it is not there.
func (c *Cluster) Attachment(name string) *storagev1.VolumeAttachment {
	if obj, ok, _ := c.attachments.GetStore().GetByKey(name); ok {
		return obj.(*storagev1.VolumeAttachment)
	}
	return nil
}

// VolumeInUse reports whether a VolumeAttachment of any driver names a PersistentVolume.
func (c *Cluster) VolumeInUse(name string) bool {
	keys, _ := c.attachments.GetIndexer().IndexKeys(byVolume, name)
	return len(keys) > 0
}

// Volume returns a PersistentVolume from the cache, nil if it is not there. The object is the
// caller's own: each call decodes it anew.
func (c *Cluster) Volume(name string) *corev1.PersistentVolume {
	if v := c.StoredVolume(name); v != nil {
		return v.PersistentVolume()
	}
	return nil
}

// StoredVolume returns a PersistentVolume as the cache keeps it, nil if it is not there.
func (c *Cluster) StoredVolume(name string) *StoredVolume {
	if obj, ok, _ := c.volumes.GetIndexer().GetByKey(name); ok {
		return obj.(*StoredVolume)
	}
	return nil
}

// ReleasableVolumes returns the PersistentVolumes that have a finalizer of an attacher and may
// have to lose it: they are being deleted, or they are not CSI volumes (any more).
func (c *Cluster) ReleasableVolumes(finalizer string) []*corev1.PersistentVolume {
	objs, err := c.volumes.GetIndexer().ByIndex(byReleasable, finalizer)
	if err != nil {
		return nil // there is no such index: New has made it
	}
	pvs := make([]*corev1.PersistentVolume, len(objs))
	for i, obj := range objs {
		pvs[i] = obj.(*StoredVolume).PersistentVolume()
	}
	return pvs
}

// CSINode returns a CSINode from the cache, nil if it is not there.
func (c *Cluster) CSINode(name string) *storagev1.CSINode {
	if obj, ok, _ := c.nodes.GetIndexer().GetByKey(name); ok {
		return obj.(*storagev1.CSINode)
	}
	return nil
}

// AttachRequired reports whether the volumes of a CSI driver have to be attached. They have to,
// unless its CSIDriver object says otherwise.
func (c *Cluster) AttachRequired(driver string) bool {
	obj, ok, _ := c.drivers.GetIndexer().GetByKey(driver)
	if !ok {
		return true
	}
	required := obj.(*storagev1.CSIDriver).Spec.AttachRequired
	return required == nil || *required
}
