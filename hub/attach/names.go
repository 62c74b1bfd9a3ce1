package attach

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const (
	// AnnotationNodeID holds the driver's ID of the node on a VolumeAttachment, so
	// that a detach works when the CSINode is gone. Shared with csi-attacher.
	AnnotationNodeID = "csi.alpha.kubernetes.io/node-id"
	// AnnotationVolumeHandle holds the volume handle on a VolumeAttachment, so that a
	// detach works when the PersistentVolume is gone. csi-attacher ignores it.
	AnnotationVolumeHandle = "attach-hub/volume-handle"
	// AnnotationMigratedTo on a PersistentVolume names the CSI driver that an in-tree
	// volume was migrated to (set by kube-controller-manager).
	AnnotationMigratedTo = "pv.kubernetes.io/migrated-to"

	// FieldManager is the hub's own name in managedFields.
	FieldManager = "csi-attach-hub"

	// FinalizerPrefix is what the finalizers of all drivers begin with.
	FinalizerPrefix = "external-attacher/"
)

// maxFinalizers bounds how many finalizers are remembered: anybody who may create
// VolumeAttachments can make names of drivers up.
const maxFinalizers = 4096

// knownFinalizers are those that were asked for, by driver: each event asks.
var knownFinalizers struct {
	sync.RWMutex
	of map[string]string // guarded by RWMutex
}

// Finalizer is what guards VolumeAttachments and PersistentVolumes of a driver:
// the one that csi-attacher uses.
func Finalizer(driver string) string {
	knownFinalizers.RLock()
	f := knownFinalizers.of[driver]
	knownFinalizers.RUnlock()
	if f != "" {
		return f
	}
	f = FinalizerPrefix + registry.SanitizedName(driver)
	knownFinalizers.Lock()
	defer knownFinalizers.Unlock()
	if knownFinalizers.of == nil {
		knownFinalizers.of = map[string]string{}
	}
	if len(knownFinalizers.of) < maxFinalizers {
		knownFinalizers.of[driver] = f
	}
	return f
}

// HasFinalizer says whether the finalizer is among those of an object.
func HasFinalizer(finalizers []string, finalizer string) bool {
	return slices.Contains(finalizers, finalizer)
}

// VolumeName returns the name of the PersistentVolume that a VolumeAttachment is
// about, "" for an inline volume.
func VolumeName(va *storagev1.VolumeAttachment) string {
	if name := va.Spec.Source.PersistentVolumeName; name != nil {
		return *name
	}
	return ""
}

// nodeIDFrom returns the ID that the driver gave a node when it registered there.
func nodeIDFrom(node *storagev1.CSINode, driver string) (string, bool) {
	if node == nil {
		return "", false
	}
	for i := range node.Spec.Drivers {
		if node.Spec.Drivers[i].Name == driver {
			return node.Spec.Drivers[i].NodeID, true
		}
	}
	return "", false
}

// NodeID returns the ID that a driver registered for a node, and whether it did. node may be nil.
func NodeID(node *storagev1.CSINode, driver string) (string, bool) { return nodeIDFrom(node, driver) }

// Leaving says whether the finalizer of a driver on a PersistentVolume is to go as
// soon as nobody uses the volume: it is being deleted, or it is a migrated in-tree
// volume that was handed back (csi-attacher drops its finalizer then).
func Leaving(pv *corev1.PersistentVolume, driver string) bool {
	return pv.DeletionTimestamp != nil || migratable(pv) && pv.Annotations[AnnotationMigratedTo] != driver
}
