package attach

import (
	"cmp"
	"fmt"
	"slices"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
)

// DriftKind is how the status of a VolumeAttachment and the storage system disagree.
type DriftKind string

const (
	// DriftNone: they agree, or nothing is known, or nothing could be done about it.
	DriftNone DriftKind = ""
	// DriftMissing: the status says attached, and the storage system has the volume
	// not published on that node, or does not list it at all.
	DriftMissing DriftKind = "missing"
)

// Drift says whether a VolumeAttachment disagrees with a listing of the driver's
// volumes. Only what has been attached and is to stay so can drift, and only while
// its node is there: a volume is never forced onto a node that is gone
// (kubernetes-csi/external-attacher issue 215). That nothing in the facts has changed
// since the listing began, and no call was in flight, is for the caller to see to. The
// error says why it cannot be told; there is nothing to be done then either.
func (d Driver) Drift(f Facts, p csiclient.Published) (DriftKind, error) {
	if !d.canDrift(f.VolumeAttachment) {
		return DriftNone, nil
	}
	registered, ok := nodeIDFrom(f.CSINode, d.Name)
	if !ok {
		return DriftNone, nil
	}
	if pv := f.PersistentVolume; pv != nil && pv.DeletionTimestamp != nil {
		return DriftNone, nil // it could not be attached again
	}
	spec, err := attachedSpec(f.VolumeAttachment, f.PersistentVolume)
	if err != nil {
		return DriftNone, err
	}
	// A node that came back under another ID may still be listed by the one that the
	// volume was attached to. Publishing to the new one then could only do harm.
	noted := cmp.Or(f.VolumeAttachment.Annotations[AnnotationNodeID], registered)
	for _, nodeID := range slices.Compact([]string{registered, noted}) {
		handle, err := d.listedHandle(f, spec.CSI.VolumeHandle, nodeID)
		if err != nil {
			return DriftNone, err
		}
		if nodes := p[handle]; nodes.Unknown || nodes.Has(nodeID) {
			return DriftNone, nil
		}
	}
	return DriftMissing, nil
}

// Healed says whether the attachError of a VolumeAttachment is of before its volume was
// attached again, as a listing shows: who had that done after it was lost did not come to
// write so.
func (d Driver) Healed(f Facts, p csiclient.Published) bool {
	return f.VolumeAttachment.Status.AttachError != nil && d.Listed(f, p)
}

// Listed reports whether a listing surely has the volume of an attached VolumeAttachment where
// that is noted to have it.
func (d Driver) Listed(f Facts, p csiclient.Published) bool {
	va := f.VolumeAttachment
	noted := NotedTarget(va)
	if !d.canDrift(va) || noted.NodeID == "" || noted.VolumeHandle == "" {
		return false
	}
	handle, err := d.listedHandle(f, noted.VolumeHandle, noted.NodeID)
	return err == nil && p[handle].Has(noted.NodeID)
}

// canDrift says whether a VolumeAttachment is one that the driver has attached, that
// is to stay attached, and of which the driver can say where its volume is.
func (d Driver) canDrift(va *storagev1.VolumeAttachment) bool {
	can := d.Capabilities
	return can.PublishUnpublish && can.ListPublishedNodes && !d.NoAttach &&
		va.Status.Attached && va.DeletionTimestamp == nil
}

// listedHandle is the handle by which the driver lists a volume. That of an in-tree
// volume can be incomplete: GCE PD's has no project, which the node's ID has. Inline volumes of drivers that
// no in-tree volumes were migrated to are not translated.
func (d Driver) listedHandle(f Facts, handle, nodeID string) (string, error) {
	pv := f.PersistentVolume
	translated := f.VolumeAttachment.Spec.Source.InlineVolumeSpec != nil || pv != nil && migratable(pv)
	if !translated || !translator.IsMigratedCSIDriverByName(d.Name) {
		return handle, nil
	}
	repaired, err := translator.RepairVolumeHandle(d.Name, handle, nodeID)
	if err != nil {
		return "", fmt.Errorf("repair volume handle %q for node %q: %w", handle, nodeID, err)
	}
	return repaired, nil
}
