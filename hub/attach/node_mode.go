package attach

import (
	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/accessmodes"
	corev1 "k8s.io/api/core/v1"
)

// NodeMode is the number of nodes that a volume may be attached to at once.
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

// specNodes returns the mode of a volume with a CSI source, UnknownNodes if it has another
// handle.
func specNodes(spec *corev1.PersistentVolumeSpec, handle string) NodeMode {
	if spec.CSI.VolumeHandle != handle {
		return UnknownNodes
	}
	// The capability SINGLE_NODE_MULTI_WRITER only chooses among single-node modes.
	mode, err := accessmodes.ToCSIAccessMode(spec.AccessModes, false)
	if err != nil {
		return UnknownNodes
	}
	return nodeModeOf(mode)
}

// volumeNodes returns the mode of a PersistentVolume, UnknownNodes if it has another handle. pv may
// be nil.
func volumeNodes(pv *corev1.PersistentVolume, handle string) NodeMode {
	if pv == nil {
		return UnknownNodes
	}
	spec, err := specOf(pv)
	if err != nil {
		return UnknownNodes
	}
	return specNodes(spec, handle)
}

// SurelyMultiNode reports whether the access mode of a PersistentVolume is MULTI_NODE. It
// returns false for an unknown or contradictory mode.
func SurelyMultiNode(pv *corev1.PersistentVolume) bool {
	return volumeNodes(pv, VolumeHandle(pv)) == MultiNode
}
