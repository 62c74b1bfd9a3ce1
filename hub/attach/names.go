package attach

import (
	"slices"
	"sync"
	"sync/atomic"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const (
	// AnnotationNodeID notes the node ID on a VolumeAttachment, so that a detach works
	// when the CSINode is gone. csi-attacher writes and reads it too.
	AnnotationNodeID = "csi.alpha.kubernetes.io/node-id"
	// AnnotationVolumeHandle notes the volume handle on a VolumeAttachment, so that a
	// detach works when the PersistentVolume is gone. csi-attacher ignores it.
	AnnotationVolumeHandle = "attach-hub/volume-handle"
	// AnnotationMigratedTo names, on a PersistentVolume, the CSI driver that an in-tree
	// volume was migrated to. kube-controller-manager writes it.
	AnnotationMigratedTo = "pv.kubernetes.io/migrated-to"

	// FieldManager is the hub's name in managedFields.
	FieldManager = "csi-attach-hub"
)

// Finalizer returns the finalizer of a driver on VolumeAttachments and PersistentVolumes, which
// csi-attacher uses too.
func Finalizer(driver string) string {
	known, ok := knownFinalizers.Load(driver)
	if !ok {
		if known = "external-attacher/" + registry.SanitizedName(driver); newFinalizers.Add(1)%keptFinalizers == 0 {
			knownFinalizers.Clear() // what is in use is soon known again
		}
		knownFinalizers.Store(driver, known)
	}
	return known.(string)
}

// keptFinalizers bounds knownFinalizers: every client that may create VolumeAttachments can invent drivers.
const keptFinalizers = 4096

var (
	knownFinalizers sync.Map // of strings, by driver: each event of the cluster needs one
	newFinalizers   atomic.Int64
)

// HasFinalizer reports whether an object has the finalizer.
func HasFinalizer(finalizers []string, finalizer string) bool {
	return slices.Contains(finalizers, finalizer)
}

// VolumeName returns the name of the PersistentVolume that a VolumeAttachment names, "" for an
// inline volume.
func VolumeName(va *storagev1.VolumeAttachment) string {
	if name := va.Spec.Source.PersistentVolumeName; name != nil {
		return *name
	}
	return ""
}

// registered returns what a driver has registered for a node, nil if nothing. node may be nil.
func registered(node *storagev1.CSINode, driver string) *storagev1.CSINodeDriver {
	if node == nil {
		return nil
	}
	for i := range node.Spec.Drivers {
		if d := &node.Spec.Drivers[i]; d.Name == driver {
			return d
		}
	}
	return nil
}

// NodeID returns the node ID that a driver has registered for a node, and whether the driver has
// registered. node may be nil.
func NodeID(node *storagev1.CSINode, driver string) (string, bool) {
	if d := registered(node, driver); d != nil {
		return d.NodeID, true
	}
	return "", false
}

// Allocatable returns how many volumes of a driver a node can have, by its CSINode, and 0 if the CSINode does not say
// so: the driver's NodeGetInfo has returned no max_volumes_per_node. node may be nil.
func Allocatable(node *storagev1.CSINode, driver string) int {
	if d := registered(node, driver); d != nil && d.Allocatable != nil && d.Allocatable.Count != nil {
		return int(*d.Allocatable.Count)
	}
	return 0
}

// LogKeys returns the keys and values that each log line about a VolumeAttachment has, beside the driver. A
// value that is not known, or that an inline volume does not have, is "".
func LogKeys(va *storagev1.VolumeAttachment, volumeHandle string) []any {
	return []any{"volumeAttachment", va.Name, "persistentVolume", VolumeName(va), "node", va.Spec.NodeName, "volumeHandle", volumeHandle}
}
