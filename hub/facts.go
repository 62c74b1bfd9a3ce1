package hub

import (
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// cachedFacts collects what the caches have about a VolumeAttachment.
func (l *leader) cachedFacts(va *storagev1.VolumeAttachment) attach.Facts {
	return attach.Facts{
		VolumeAttachment: va,
		PersistentVolume: l.overlay.Volume(attach.VolumeName(va)),
		CSINode:          l.cluster.CSINode(va.Spec.NodeName),
	}
}

// factsOf is cachedFacts with the last state of a PersistentVolume that is gone.
func (l *leader) factsOf(va *storagev1.VolumeAttachment) attach.Facts {
	facts := l.cachedFacts(va)
	facts.PersistentVolume = l.overlay.CachedOrDeleted(va)
	return facts
}
