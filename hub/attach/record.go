package attach

import (
	corev1 "k8s.io/api/core/v1"
)

// Record is what is known of a volume that is or may be published at a target, from the call or from
// the objects.
type Record struct {
	Target Target
	// SecretRef is the secret that goes with the calls, nil for none.
	SecretRef *corev1.SecretReference
	// SecretKnown: SecretRef is that of the volume, also if it is nil.
	SecretKnown bool
	// Nodes is the mode of the call, or what the volume says.
	Nodes NodeMode
}

// Record returns what the call of a plan records.
func (p Plan) Record() Record {
	return Record{Target: p.Target, SecretRef: p.SecretRef, SecretKnown: true,
		Nodes: nodeModeOf(p.Publish.GetVolumeCapability().GetAccessMode().GetMode())}
}

// Recorded returns what a VolumeAttachment records as published, and whether it does: a node ID
// beside a finalizer, or beside a status that says attached, says that the volume may be.
func (d Driver) Recorded(f Facts) (Record, bool) {
	va := f.VolumeAttachment
	nodeID := NotedTarget(va).NodeID
	if nodeID == "" || !HasFinalizer(va.Finalizers, Finalizer(d.Name)) && !va.Status.Attached {
		return Record{}, false
	}
	return recordOf(f, nodeID)
}

// LastRecorded is Recorded for the last state of a VolumeAttachment that is gone. One that says
// attached with neither finalizer nor node ID was marked so by a csi-attacher whose write was meant
// for another object of the same name, which was deleted just then (kubernetes/kubernetes issue
// 124749): its volume may be attached to the node, by the ID that the node has now. A driver without
// PUBLISH_UNPUBLISH_VOLUME has all its VolumeAttachments that way, and attaches nothing.
func (d Driver) LastRecorded(f Facts) (Record, bool) {
	if r, ok := d.Recorded(f); ok {
		return r, true
	}
	va := f.VolumeAttachment
	if !d.Capabilities.PublishUnpublish || !va.Status.Attached || NotedTarget(va).NodeID != "" {
		return Record{}, false
	}
	nodeID, registered := nodeIDFrom(f.CSINode, d.Name)
	if !registered || nodeID == "" {
		return Record{}, false
	}
	return recordOf(f, nodeID)
}

// recordOf returns the record of the volume of a VolumeAttachment at a node ID, and whether its
// handle is known.
func recordOf(f Facts, nodeID string) (Record, bool) {
	handle, spec, err := attachedVolume(f.VolumeAttachment, f.PersistentVolume)
	if err != nil || handle == "" {
		return Record{}, false
	}
	r := Record{Target: Target{VolumeHandle: handle, NodeID: nodeID}}
	if spec != nil {
		r.SecretRef, r.SecretKnown = spec.CSI.ControllerPublishSecretRef, true
		r.Nodes = specNodes(spec, handle)
	}
	return r, true
}

// SurelyMultiNode reports whether the volume may be published at several nodes at once: its access mode
// is a MULTI_NODE one, as it was published, and as its PersistentVolume says now, as far as either is
// known. pv may be nil.
func (r Record) SurelyMultiNode(pv *corev1.PersistentVolume) bool {
	now := UnknownNodes
	if pv != nil {
		if spec, err := specOf(pv); err == nil {
			now = specNodes(spec, r.Target.VolumeHandle)
		}
	}
	return surelyMultiNode(now, r.Nodes)
}
