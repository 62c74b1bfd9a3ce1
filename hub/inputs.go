package hub

import (
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// cachedInputs returns the inputs of a decision about a VolumeAttachment from the caches.
func (l *leader) cachedInputs(va *storagev1.VolumeAttachment) attach.Inputs {
	return attach.Inputs{
		VolumeAttachment: va,
		PersistentVolume: l.overlay.Volume(attach.VolumeName(va)),
		CSINode:          l.cluster.CSINode(va.Spec.NodeName),
	}
}

// inputsOf is cachedInputs, with the last state of the PersistentVolume if that is gone.
func (l *leader) inputsOf(va *storagev1.VolumeAttachment) attach.Inputs {
	inputs := l.cachedInputs(va)
	inputs.PersistentVolume = l.overlay.VolumeOrDeleted(attach.VolumeName(va))
	return inputs
}
