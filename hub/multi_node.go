package hub

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// takeTurn gives an item its turn on a volume for a call at a target. Calls for a
// multi-node volume on other nodes may have their turns at the same time. If it returns
// false, the item has left its worker, see queue.TakeTurn.
func (d *driver) takeTurn(it *item, target attach.Target, multiNode bool) bool {
	if multiNode {
		return d.queue.ShareTurn(it, target.VolumeHandle, target.NodeID)
	}
	return d.queue.TakeTurn(it, target.VolumeHandle)
}

// leftMultiNode reports whether the volume that a record says is attached somewhere is
// surely a multi-node one. The PersistentVolume may be gone.
func (d *driver) leftMultiNode(r *record) bool {
	var pv *corev1.PersistentVolume
	if r.volume != "" {
		if pv = d.overlay.Volume(r.volume); pv == nil {
			pv = d.cluster.DeletedVolume(r.volume)
		}
	}
	return r.progress.LeftMultiNode(pv)
}

// sideBySideOnNodes reports whether a volume may be detached at once from all targets where
// it was left attached.
func (d *driver) sideBySideOnNodes(left []workKey) bool {
	return d.desired.settings().ParallelMultiNode && !slices.ContainsFunc(left, func(key workKey) bool {
		r := d.ledger.orphan(key)
		return r == nil || !d.leftMultiNode(r)
	})
}
