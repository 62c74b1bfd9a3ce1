package attach

import (
	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/accessmodes"
	corev1 "k8s.io/api/core/v1"
)

// NodeMode says to how many nodes a volume may be attached at once.
type NodeMode int8

const (
	UnknownNodes NodeMode = iota
	SingleNode
	MultiNode
)

// nodeModeOf returns the mode of a CSI access mode.
func nodeModeOf(mode csi.VolumeCapability_AccessMode_Mode) NodeMode {
	switch mode {
	case csi.VolumeCapability_AccessMode_UNKNOWN:
		return UnknownNodes
	case csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
		csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER,
		csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
		return MultiNode
	}
	return SingleNode
}

// specNodes returns the mode of a volume with a CSI source, unknown if it is not the one
// with the handle.
func specNodes(spec *corev1.PersistentVolumeSpec, handle string) NodeMode {
	if spec.CSI.VolumeHandle != handle {
		return UnknownNodes
	}
	// SINGLE_NODE_MULTI_WRITER only tells single-node modes apart.
	mode, err := accessmodes.ToCSIAccessMode(spec.AccessModes, false)
	if err != nil {
		return UnknownNodes
	}
	return nodeModeOf(mode)
}

// surelyMultiNode reports whether all that is known of a mode is multi-node, and something
// is known.
func surelyMultiNode(modes ...NodeMode) bool {
	known := false
	for _, mode := range modes {
		if mode == SingleNode {
			return false
		}
		known = known || mode == MultiNode
	}
	return known
}

// SurelyMultiNode reports whether the access mode of a PersistentVolume is a MULTI_NODE one. An
// unknown or contradictory mode is none.
func SurelyMultiNode(pv *corev1.PersistentVolume) bool {
	spec, err := specOf(pv)
	return err == nil && specNodes(spec, spec.CSI.VolumeHandle) == MultiNode
}
