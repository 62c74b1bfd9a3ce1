package hub

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache"
)

// readFacts collects what is known about a VolumeAttachment. What the caches do not have is
// asked for: an object may be younger than its cache, and an error would reach the
// user's pod.
func readFacts(ctx context.Context, c *cache.Cluster, va *storagev1.VolumeAttachment, cached func(volume string) *corev1.PersistentVolume) (attach.Facts, error) {
	facts := attach.Facts{VolumeAttachment: va}
	var err error
	if name := attach.VolumeName(va); name != "" {
		if facts.PersistentVolume = cached(name); facts.PersistentVolume == nil {
			if facts.PersistentVolume, err = c.ReadVolume(ctx, name); err != nil {
				return facts, err
			}
		}
	}
	facts.CSINode, err = c.FindCSINode(ctx, va.Spec.NodeName)
	return facts, err
}

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
