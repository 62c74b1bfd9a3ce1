package cache

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// ReadFacts returns what is known about a VolumeAttachment. It reads from the API server what the caches
// lack: an object may be younger than its cache, and an error would reach the user's Pod.
func (c *Cluster) ReadFacts(ctx context.Context, va *storagev1.VolumeAttachment) (attach.Facts, error) {
	return c.readFacts(ctx, va, c.Volume)
}

// ReadFacts is Cluster.ReadFacts with the newest known state of the PersistentVolume.
func (o *Overlay) ReadFacts(ctx context.Context, va *storagev1.VolumeAttachment) (attach.Facts, error) {
	return o.cluster.readFacts(ctx, va, o.Volume)
}

func (c *Cluster) readFacts(ctx context.Context, va *storagev1.VolumeAttachment, volume func(name string) *corev1.PersistentVolume) (attach.Facts, error) {
	facts := attach.Facts{VolumeAttachment: va}
	var err error
	if name := attach.VolumeName(va); name != "" {
		if facts.PersistentVolume = volume(name); facts.PersistentVolume == nil {
			if facts.PersistentVolume, err = c.ReadVolume(ctx, name); err != nil {
				return facts, err
			}
		}
	}
	facts.CSINode, err = c.FindCSINode(ctx, va.Spec.NodeName)
	return facts, err
}
