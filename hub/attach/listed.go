package attach

import (
	"fmt"
	"path"

	storagev1 "k8s.io/api/storage/v1"
)

// ListedHandle returns the handle by which the driver lists a volume at a node ID. It differs from the
// handle of the PersistentVolume only for in-tree volumes that are migrated to CSI.
func (d Driver) ListedHandle(handle, nodeID string) string {
	if listed, err := d.repairedHandle(handle, nodeID); err == nil {
		return listed
	}
	return handle
}

// ListedAs returns the handle by which the driver lists a volume of a VolumeAttachment. The handle of an in-tree
// volume can be incomplete: the handle of a GCE PD lacks the project, which the node ID has. Inline
// volumes are translated only for drivers to which in-tree volumes are migrated.
func (d Driver) ListedAs(f Inputs, handle, nodeID string) (string, error) {
	if pv := f.PersistentVolume; f.VolumeAttachment.Spec.Source.InlineVolumeSpec != nil || pv != nil && pv.MigratedTo != nil {
		return d.repairedHandle(handle, nodeID)
	}
	return handle, nil
}

// AttachedAs is ListedAs for the volume that an attached VolumeAttachment has. The error says why it is not known.
func (d Driver) AttachedAs(f Inputs, nodeID string) (string, error) {
	source, err := f.attachedAgain()
	if err != nil {
		return "", err
	}
	return d.ListedAs(f, source.Handle, nodeID)
}

func (d Driver) repairedHandle(handle, nodeID string) (string, error) {
	if !d.IsMigrated() {
		return handle, nil
	}
	repaired, err := translator.RepairVolumeHandle(d.Name, handle, nodeID)
	if err != nil {
		return "", fmt.Errorf("repair volume handle %q for node %q: %w", handle, nodeID, err)
	}
	return repaired, nil
}

// HandleKey returns what the handle of a PersistentVolume and the handle by which the driver lists it have in common.
func (d Driver) HandleKey(handle string) string {
	if d.IsMigrated() { // the repair of a handle fills in its project or zone
		return path.Base(handle)
	}
	return handle
}

// IsMigrated reports whether in-tree volumes are migrated to the driver.
func (d Driver) IsMigrated() bool { return translator.IsMigratedCSIDriverByName(d.Name) }

// MayBeOf reports whether a VolumeAttachment may be about a volume, as far as its name tells.
func MayBeOf(va *storagev1.VolumeAttachment, volumeHandle string) bool {
	return !ofAnotherVolume(va, volumeHandle)
}
