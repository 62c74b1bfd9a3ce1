package hub

import (
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// Each line about a volume is logged by one of these loggers, so that it has the keys that OPERATE.md lists. They
// begin with the logger of the manager, which names the driver: with the logger of a context, a key might be
// there twice.

// volumeLogger returns the logger for a VolumeAttachment and its volume. While the PersistentVolume is not in the
// cache yet, the volume handle is known from the note that is written before the driver is called.
func (m *manager) volumeLogger(va *storagev1.VolumeAttachment) klog.Logger {
	va = m.overlay.Newest(va)
	return m.logger.WithValues(attach.LogKeys(va, m.cluster.VolumeHandle(va))...)
}

// unownedLogger returns the logger for an unowned publication. It names the VolumeAttachment that the volume was
// published for.
func (m *manager) unownedLogger(u volume.Unowned) klog.Logger {
	keys := attach.LogKeys(formerObject(u.FormerOwner), u.Target.VolumeHandle)
	return m.logger.WithValues(append(keys, "nodeID", u.Target.NodeID)...)
}
