package cache

import (
	"context"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// ReadInputs returns the inputs of a decision about a VolumeAttachment. It reads objects that the caches lack
// from the API server: an object may be younger than its cache, and an error would reach the user's Pod. It also
// reads a CSINode whose node ID is not the noted one.
func (c *Cluster) ReadInputs(ctx context.Context, va *storagev1.VolumeAttachment) (attach.Inputs, error) {
	return c.readInputs(ctx, va, c.Volume)
}

// ReadInputs is Cluster.ReadInputs with the newest known state of the PersistentVolume.
func (o *Overlay) ReadInputs(ctx context.Context, va *storagev1.VolumeAttachment) (attach.Inputs, error) {
	return o.cluster.readInputs(ctx, va, o.Volume)
}

func (c *Cluster) readInputs(ctx context.Context, va *storagev1.VolumeAttachment, volume func(name string) *attach.Volume) (attach.Inputs, error) {
	inputs := attach.Inputs{VolumeAttachment: va}
	var err error
	if name := attach.VolumeName(va); name != "" {
		if inputs.PersistentVolume = volume(name); inputs.PersistentVolume == nil {
			if inputs.PersistentVolume, err = c.ReadVolume(ctx, name); err != nil {
				return inputs, err
			}
		}
	}
	inputs.CSINode, err = c.findCSINode(ctx, va)
	return inputs, err
}
