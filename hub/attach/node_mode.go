package attach

import (
	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/accessmodes"
	corev1 "k8s.io/api/core/v1"
)

// nodeMode says to how many nodes a volume may be attached at once.
type nodeMode int8

const (
	unknownNodes nodeMode = iota
	singleNode
	multiNode
)

// nodeModeOf returns the mode of a CSI access mode.
func nodeModeOf(mode csi.VolumeCapability_AccessMode_Mode) nodeMode {
	switch mode {
	case csi.VolumeCapability_AccessMode_UNKNOWN:
		return unknownNodes
	case csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
		csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER,
		csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
		return multiNode
	}
	return singleNode
}

// specNodes returns the mode of a volume with a CSI source, unknown if it is not the one
// with the handle.
func specNodes(spec *corev1.PersistentVolumeSpec, handle string) nodeMode {
	if spec.CSI.VolumeHandle != handle {
		return unknownNodes
	}
	// SINGLE_NODE_MULTI_WRITER only tells single-node modes apart.
	mode, err := accessmodes.ToCSIAccessMode(spec.AccessModes, false)
	if err != nil {
		return unknownNodes
	}
	return nodeModeOf(mode)
}

// surelyMultiNode reports whether all that is known of a mode is multi-node, and something
// is known.
func surelyMultiNode(modes ...nodeMode) bool {
	known := false
	for _, mode := range modes {
		if mode == singleNode {
			return false
		}
		known = known || mode == multiNode
	}
	return known
}

// MultiNode reports whether the call of a plan may run beside calls for the same volume on
// other nodes: its access mode is a MULTI_NODE one, now and, as far as this process knows,
// as it was published.
func (p *Progress) MultiNode(plan Plan) bool {
	return !plan.SingleNode && surelyMultiNode(multiNode, p.nodesOf(plan.Target.VolumeHandle))
}

// LeftMultiNode is MultiNode for an unpublish at p's own Target. The PersistentVolume says
// what the mode is now; nil if there is none.
func (p *Progress) LeftMultiNode(pv *corev1.PersistentVolume) bool {
	handle, now := p.Target.VolumeHandle, unknownNodes
	if pv != nil {
		if spec, err := specOf(pv); err == nil {
			now = specNodes(spec, handle)
		}
	}
	return surelyMultiNode(now, p.nodesOf(handle))
}

// SurelyMultiNode reports whether the access mode of a PersistentVolume is a MULTI_NODE one. An
// unknown or contradictory mode is none.
func SurelyMultiNode(pv *corev1.PersistentVolume) bool {
	spec, err := specOf(pv)
	return err == nil && specNodes(spec, spec.CSI.VolumeHandle) == multiNode
}

// nodesOf returns the mode in which a volume was published last, as far as this process knows.
func (p *Progress) nodesOf(handle string) nodeMode {
	if p.Target.VolumeHandle != handle {
		return unknownNodes
	}
	return p.nodes
}
