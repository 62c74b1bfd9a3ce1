package cache

import (
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// AttachmentsOfHandle returns the VolumeAttachments of a CSI driver that have a volume handle: in their note or,
// without a note, in the PersistentVolume, its last state or the inline specification. With "" it returns the
// VolumeAttachments whose handle is not known.
//
// It takes time in proportion to the VolumeAttachments of the driver. An index would take
// 300 bytes for each VolumeAttachment, and only handles of unowned publications are looked up.
func (c *Cluster) AttachmentsOfHandle(driver, handle string) []*storagev1.VolumeAttachment {
	var found []*storagev1.VolumeAttachment
	for _, va := range c.AttachmentsOfDriver(driver) {
		if c.VolumeHandle(va) == handle {
			found = append(found, va)
		}
	}
	return found
}

// VolumeHandle returns the volume handle of a VolumeAttachment: the noted handle, or else the handle of its
// PersistentVolume or inline specification, "" if it is not known.
func (c *Cluster) VolumeHandle(va *storagev1.VolumeAttachment) string {
	return attach.HandleOf(attach.Inputs{VolumeAttachment: va, PersistentVolume: c.VolumeOrDeleted(attach.VolumeName(va))})
}
