package hub

import (
	corev1 "k8s.io/api/core/v1"
)

// A ghost is a PersistentVolume that is gone while a VolumeAttachment still names
// it: somebody took its finalizers. What was attached by csi-attacher has no note
// of its volume handle, so the last state of the volume is all there is to detach
// by (external-attacher issue 235).

// haunt keeps a PersistentVolume that is gone, if it is still needed.
func (c *Cluster) haunt(v *storedVolume) {
	if !c.volumeInUse(v.name) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ghosts[v.name] = v
}

// exorcise forgets a ghost: its volume is back, or nobody names it any more.
func (c *Cluster) exorcise(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.ghosts, name)
}

// ghost returns the last state of a PersistentVolume that is gone, nil if that is
// not known.
func (c *Cluster) ghost(name string) *corev1.PersistentVolume {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.ghosts[name]; v != nil {
		return v.volume()
	}
	return nil
}
