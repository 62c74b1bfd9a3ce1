package attach

import (
	"cmp"
	"fmt"
	"slices"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
)

// DriftKind is a difference between the status of a VolumeAttachment and the storage system.
type DriftKind string

const (
	// DriftNone: there is no difference that is known and can be repaired.
	DriftNone DriftKind = ""
	// DriftMissing: the status says attached, and the storage system does not report the
	// volume on the node.
	DriftMissing DriftKind = "missing"
)

// Drift compares a VolumeAttachment with a listing of the driver's volumes. It reports a difference
// only for a volume that is attached and must stay attached, and only while its node exists: a
// volume is never forced onto a node that is gone (kubernetes-csi/external-attacher issue 215). The
// caller makes sure that the inputs have not changed and no call was in flight since the listing
// began. The error says why they cannot be compared; the kind is DriftNone then.
func (d Driver) Drift(f Inputs, p csiclient.Published) (DriftKind, error) {
	if !d.canDrift(f.VolumeAttachment) {
		return DriftNone, nil
	}
	registered, ok := NodeID(f.CSINode, d.Name)
	if !ok {
		return DriftNone, nil
	}
	if pv := f.PersistentVolume; pv != nil && pv.Deleted != nil {
		return DriftNone, nil // the volume could not be attached again
	}
	source, err := f.attachedAgain()
	if err != nil {
		return DriftNone, err
	}
	// The driver may still list the noted node ID of a node that has another node ID now. To publish
	// the volume to the new node ID would be wrong then.
	noted := cmp.Or(f.VolumeAttachment.Annotations[AnnotationNodeID], registered)
	for _, nodeID := range slices.Compact([]string{registered, noted}) {
		handle, err := d.listedHandle(f, source.Handle, nodeID)
		if err != nil {
			return DriftNone, err
		}
		if nodes := p[handle]; nodes.Unknown || nodes.Has(nodeID) {
			return DriftNone, nil
		}
	}
	return DriftMissing, nil
}

// Healed reports whether attachError predates a successful re-attach: a listing has the volume at
// its noted target, and the process that attached it again ended before it removed the error.
func (d Driver) Healed(f Inputs, p csiclient.Published) bool {
	return f.VolumeAttachment.Status.AttachError != nil && d.Listed(f, p)
}

// Listed reports whether a listing has the volume of an attached VolumeAttachment at its noted
// target.
func (d Driver) Listed(f Inputs, p csiclient.Published) bool {
	va := f.VolumeAttachment
	noted := NotedTarget(va)
	if !d.canDrift(va) || noted.NodeID == "" || noted.VolumeHandle == "" {
		return false
	}
	handle, err := d.listedHandle(f, noted.VolumeHandle, noted.NodeID)
	return err == nil && p[handle].Has(noted.NodeID)
}

// SurelyListed reports whether a listing has the volume of a VolumeAttachment at its noted target, whatever its
// PersistentVolume is. Then there is no drift. false: the PersistentVolume is needed to tell.
func (d Driver) SurelyListed(va *storagev1.VolumeAttachment, p csiclient.Published) bool {
	noted := NotedTarget(va)
	if noted.NodeID == "" || noted.VolumeHandle == "" || !p[noted.VolumeHandle].Has(noted.NodeID) {
		return false
	}
	if !translator.IsMigratedCSIDriverByName(d.Name) {
		return true
	}
	repaired, err := translator.RepairVolumeHandle(d.Name, noted.VolumeHandle, noted.NodeID)
	return err == nil && repaired == noted.VolumeHandle
}

// canDrift reports whether a VolumeAttachment is attached and must stay attached, and the driver
// lists the nodes of its volumes.
func (d Driver) canDrift(va *storagev1.VolumeAttachment) bool {
	can := d.Capabilities
	return can.PublishUnpublish && can.ListPublishedNodes && !d.NoAttach &&
		va.Status.Attached && va.DeletionTimestamp == nil
}

// listedHandle returns the handle by which the driver lists a volume. The handle of an in-tree
// volume can be incomplete: the handle of a GCE PD lacks the project, which the node ID has. Inline
// volumes are translated only for drivers to which in-tree volumes are migrated.
func (d Driver) listedHandle(f Inputs, handle, nodeID string) (string, error) {
	pv := f.PersistentVolume
	translated := f.VolumeAttachment.Spec.Source.InlineVolumeSpec != nil || pv != nil && pv.MigratedTo != nil
	if !translated || !translator.IsMigratedCSIDriverByName(d.Name) {
		return handle, nil
	}
	repaired, err := translator.RepairVolumeHandle(d.Name, handle, nodeID)
	if err != nil {
		return "", fmt.Errorf("repair volume handle %q for node %q: %w", handle, nodeID, err)
	}
	return repaired, nil
}
