package attach

import (
	"cmp"
	"fmt"
	"path"
	"slices"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
)

// DriftUnexpected: the storage system reports a volume on a node where no VolumeAttachment asks for
// it.
const DriftUnexpected DriftKind = "unexpected"

// Asked has the targets that the VolumeAttachments of a driver ask for, by the handles with which the
// driver lists the volumes. It is not safe for concurrent use.
type Asked struct {
	driver  Driver
	targets map[Target]*storagev1.VolumeAttachment
	unclear []demand
}

// demand is a VolumeAttachment whose volume or node is not known.
type demand struct {
	va               *storagev1.VolumeAttachment
	handles, nodeIDs []string // that it may ask for; none: any
}

// Asked returns an Asked without VolumeAttachments.
func (d Driver) Asked() *Asked {
	return &Asked{driver: d, targets: map[Target]*storagev1.VolumeAttachment{}}
}

// Add adds a VolumeAttachment of the driver. It asks for its noted target, and for the volume and the
// node that it would be attached with now, also while it is being deleted. handle is that of its
// PersistentVolume or inline volume, "" if that is not known. node may be nil.
func (a *Asked) Add(va *storagev1.VolumeAttachment, handle string, node *storagev1.CSINode) {
	guarded := HasFinalizer(va.Finalizers, Finalizer(a.driver.Name))
	if va.DeletionTimestamp != nil && !guarded {
		return // detached before, or never attached
	}
	noted := NotedTarget(va)
	registered, _ := NodeID(node, a.driver.Name)
	handles, nodeIDs := [2]string{noted.VolumeHandle, handle}, [2]string{noted.NodeID, registered}
	switch noHandle, noNode := noted.VolumeHandle == "" && handle == "", noted.NodeID == "" && registered == ""; {
	case noHandle && !guarded && !va.Status.Attached && noted.NodeID == "":
		return // it waits for its PersistentVolume, and no attacher has called the driver for it
	case noHandle || noNode:
		a.unclear = append(a.unclear, demand{va: va, handles: known(handles), nodeIDs: known(nodeIDs)})
		return
	}
	for _, nodeID := range nodeIDs {
		for _, handle := range handles {
			if handle == "" || nodeID == "" {
				continue
			}
			a.targets[Target{handle, nodeID}] = va
			if listed := a.driver.ListedHandle(handle, nodeID); listed != handle {
				a.targets[Target{listed, nodeID}] = va
			}
		}
	}
}

func known(texts [2]string) []string {
	return slices.DeleteFunc(slices.Clone(texts[:]), func(text string) bool { return text == "" })
}

// By returns a VolumeAttachment that may ask for a target, nil if there is none.
func (a *Asked) By(t Target) *storagev1.VolumeAttachment {
	if va := a.targets[t]; va != nil {
		return va
	}
	listed := func(handle string) bool {
		return handle == t.VolumeHandle || a.driver.ListedHandle(handle, t.NodeID) == t.VolumeHandle
	}
	for _, d := range a.unclear {
		// The name of a VolumeAttachment of a migrated volume is made of another handle than the driver lists.
		unknown := len(d.handles) == 0 && (a.driver.IsMigrated() || !ofAnotherVolume(d.va, t.VolumeHandle))
		handle := unknown || slices.ContainsFunc(d.handles, listed)
		if handle && (slices.Contains(d.nodeIDs, t.NodeID) || len(d.nodeIDs) == 0) {
			return d.va
		}
	}
	return nil
}

// Unasked returns the targets of a listing that no VolumeAttachment asks for.
func (a *Asked) Unasked(p csiclient.Published) []Target {
	var unasked []Target
	for handle, nodes := range p {
		for _, nodeID := range nodes.IDs {
			if t := (Target{handle, nodeID}); a.By(t) == nil {
				unasked = append(unasked, t)
			}
		}
	}
	slices.SortFunc(unasked, func(a, b Target) int {
		return cmp.Or(cmp.Compare(a.VolumeHandle, b.VolumeHandle), cmp.Compare(a.NodeID, b.NodeID))
	})
	return unasked
}

// ListedHandle returns the handle by which the driver lists a volume at a node ID. It differs from the
// handle of the PersistentVolume only for in-tree volumes that are migrated to CSI.
func (d Driver) ListedHandle(handle, nodeID string) string {
	if !d.IsMigrated() {
		return handle
	}
	if repaired, err := translator.RepairVolumeHandle(d.Name, handle, nodeID); err == nil {
		return repaired
	}
	return handle
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

// Dangling is a volume that the driver reports at a target where no VolumeAttachment asks for it, and
// what decides whether the hub may detach it there.
type Dangling struct {
	Listed  Target    // as the driver reports it
	Nodes   []string  // of this cluster for which the driver has registered the node ID
	Volumes []*Volume // of all drivers that have the volume handle; none if none is the driver's
	// Claimant is a VolumeAttachment that may ask for the target, or did when the driver was asked.
	Claimant string
	Worked   bool // there was other work for the volume at the target since the driver was asked
	// Missing is a VolumeAttachment whose volume is attached, and not reported on its node.
	Missing string
}

// Kept returns why the volume must not be detached, for people; "" if it may be. A rule that holds makes
// the fields of later rules irrelevant.
func (d Dangling) Kept() string {
	switch {
	case len(d.Nodes) == 0:
		return "no CSINode of this cluster has the node ID"
	case len(d.Volumes) == 0:
		return "no PersistentVolume of the driver in this cluster has the volume handle"
	case len(d.Volumes) > 1:
		return fmt.Sprintf("two PersistentVolumes have the volume handle: %s and %s", d.Volumes[0].Name, d.Volumes[1].Name)
	case d.Claimant != "":
		return fmt.Sprintf("VolumeAttachment %s may ask for it there", d.Claimant)
	case d.Worked:
		return "other work on the volume has begun there"
	case d.Missing != "":
		return fmt.Sprintf("the driver does not report the volume on the node of VolumeAttachment %s, where it is attached", d.Missing)
	}
	return ""
}

// Node returns the name of the Kubernetes node, "" if none is known.
func (d Dangling) Node() string {
	if len(d.Nodes) == 0 {
		return ""
	}
	return d.Nodes[0]
}

// Record returns the record of the publication. The volume has exactly one PersistentVolume.
func (d Dangling) Record() Record {
	v := d.Volumes[0]
	return Record{Target: Target{VolumeHandle: v.Handle, NodeID: d.Listed.NodeID}, SecretRef: v.SecretRef, SecretKnown: true, Nodes: v.Nodes}
}

// MayHave reports whether a VolumeAttachment may have a volume attached that nothing says it is about: it notes no handle,
// and its PersistentVolume may have been recreated with another handle since csi-attacher attached it.
func (d Driver) MayHave(va *storagev1.VolumeAttachment, handle string) bool {
	touched := va.Status.Attached || HasFinalizer(va.Finalizers, Finalizer(d.Name))
	return va.Spec.Attacher == d.Name && touched && NotedTarget(va).VolumeHandle == "" && !ofAnotherVolume(va, handle)
}
