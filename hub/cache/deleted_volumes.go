package cache

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// A ghost is a PersistentVolume that is gone while a VolumeAttachment still names
// it: somebody took its finalizers. What was attached by csi-attacher has no note
// of its volume handle, so the last state of the volume is all there is to detach
// by (external-attacher issue 235).

// Haunt keeps a PersistentVolume that is gone, if it is still needed.
func (c *Cluster) KeepDeleted(v *StoredVolume) {
	if !c.VolumeInUse(v.name) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deleted[v.name] = v
}

// Exorcise forgets a ghost: its volume is back, or nobody names it any more.
func (c *Cluster) DropDeleted(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.deleted, name)
}

// Ghost returns the last state of a PersistentVolume that is gone, nil if that is
// not known.
func (c *Cluster) DeletedVolume(name string) *corev1.PersistentVolume {
	c.mu.Lock()
	v := c.deleted[name]
	c.mu.Unlock()
	if v == nil {
		return nil
	}
	return v.PersistentVolume()
}

// VolumeOrGhost returns the PersistentVolume of a VolumeAttachment as the cache has it, or
// its last state, nil if neither is known.
func (c *Cluster) CachedOrDeleted(va *storagev1.VolumeAttachment) *corev1.PersistentVolume {
	name := attach.VolumeName(va)
	if pv := c.Volume(name); pv != nil {
		return pv
	}
	return c.DeletedVolume(name)
}

// VolumeOrGhost is that with what this process has written.
func (o *Overlay) CachedOrDeleted(va *storagev1.VolumeAttachment) *corev1.PersistentVolume {
	name := attach.VolumeName(va)
	if pv := o.Volume(name); pv != nil {
		return pv
	}
	return o.cluster.DeletedVolume(name)
}
