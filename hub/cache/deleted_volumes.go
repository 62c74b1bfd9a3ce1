package cache

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// A PersistentVolume can be deleted while a VolumeAttachment still names it, if a client removes its finalizers.
// csi-attacher notes no volume handle in the VolumeAttachment. Then only the last state of the PersistentVolume
// has the handle of the volume to detach (external-attacher issue 235).

// KeepDeleted keeps the last state of a PersistentVolume that is gone, if a VolumeAttachment names
// it.
func (c *Cluster) KeepDeleted(v *StoredVolume) {
	if !c.VolumeInUse(v.name) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deleted[v.name] = v
}

// DropDeleted drops the last state of a PersistentVolume that exists again, or that no VolumeAttachment names
// any more.
func (c *Cluster) DropDeleted(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.deleted, name)
}

// DeletedVolume returns the last state of a PersistentVolume that is gone, nil if none is kept. The
// object is the caller's own.
func (c *Cluster) DeletedVolume(name string) *corev1.PersistentVolume {
	return c.storedDeleted(name).PersistentVolume()
}

func (c *Cluster) storedDeleted(name string) *StoredVolume {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deleted[name]
}

// CachedOrDeleted returns the PersistentVolume of a VolumeAttachment from the cache, or else its
// last state, nil if neither is known.
func (c *Cluster) CachedOrDeleted(va *storagev1.VolumeAttachment) *corev1.PersistentVolume {
	return c.StoredOrDeleted(attach.VolumeName(va)).PersistentVolume()
}

// CachedOrDeleted returns the newest known state of the PersistentVolume of a VolumeAttachment, or
// else its last state, nil if neither is known.
func (o *Overlay) CachedOrDeleted(va *storagev1.VolumeAttachment) *corev1.PersistentVolume {
	name := attach.VolumeName(va)
	if pv := o.Volume(name); pv != nil {
		return pv
	}
	return o.cluster.DeletedVolume(name)
}

// StoredOrDeleted returns a PersistentVolume as the cache keeps it, or else its last state, nil if
// neither is known.
func (c *Cluster) StoredOrDeleted(name string) *StoredVolume {
	if v := c.StoredVolume(name); v != nil {
		return v
	}
	return c.storedDeleted(name)
}
