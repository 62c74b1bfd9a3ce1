package hub

import (
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// cachedFacts collects what the caches know of a VolumeAttachment.
func (d *driver) cachedFacts(va *storagev1.VolumeAttachment) attach.Facts {
	return attach.Facts{
		VolumeAttachment: va,
		PersistentVolume: d.overlay.Volume(attach.VolumeName(va)),
		CSINode:          d.cluster.CSINode(va.Spec.NodeName),
	}
}

// factsOf is cachedFacts with the last state of a PersistentVolume that is gone.
func (d *driver) factsOf(va *storagev1.VolumeAttachment) attach.Facts {
	facts := d.cachedFacts(va)
	facts.PersistentVolume = d.overlay.CachedOrDeleted(va)
	return facts
}
