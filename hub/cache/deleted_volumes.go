package cache

import (
	"cmp"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// A PersistentVolume can be deleted while a VolumeAttachment still names it, if a client removes its finalizers.
// csi-attacher notes no volume handle in the VolumeAttachment. Then only the last state of the PersistentVolume
// has the handle of the volume to detach (external-attacher issue 235).

// KeepDeleted keeps the last state of a PersistentVolume that is gone, if a VolumeAttachment names
// it.
func (c *Cluster) KeepDeleted(v *attach.Volume) {
	if !c.VolumeInUse(v.Name) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deleted[v.Name] = v
}

// DropDeleted drops the last state of a PersistentVolume that exists again, or that no VolumeAttachment names
// any more.
func (c *Cluster) DropDeleted(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.deleted, name)
}

// DeletedVolume returns the last state of a PersistentVolume that is gone, nil if none is kept.
func (c *Cluster) DeletedVolume(name string) *attach.Volume {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deleted[name]
}

// VolumeOrDeleted returns a PersistentVolume from the cache, or else its last state, nil if neither is known.
func (c *Cluster) VolumeOrDeleted(name string) *attach.Volume {
	return cmp.Or(c.Volume(name), c.DeletedVolume(name))
}

// VolumeOrDeleted returns the newest known state of a PersistentVolume, or else its last state, nil if neither is known.
func (o *Overlay) VolumeOrDeleted(name string) *attach.Volume {
	return cmp.Or(o.Volume(name), o.cluster.DeletedVolume(name))
}
