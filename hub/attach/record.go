package attach

import corev1 "k8s.io/api/core/v1"

// Record describes a volume that is or may be published at a target. It is made from the call or
// from the objects.
type Record struct {
	Target Target
	// SecretRef names the Secret of the calls, nil for none.
	SecretRef *corev1.SecretReference
	// SecretKnown: SecretRef is the reference of this volume, also if it is nil. Otherwise it is not known.
	SecretKnown bool
	// Nodes is the mode of the call, or of the PersistentVolume.
	Nodes NodeMode
}

// Recorded returns the record of the volume that a VolumeAttachment may have published, and whether
// there is one: the VolumeAttachment notes a node ID, and has the finalizer or is attached.
func (d Driver) Recorded(f Inputs) (Record, bool) {
	va := f.VolumeAttachment
	nodeID := NotedTarget(va).NodeID
	if nodeID == "" || !HasFinalizer(va.Finalizers, Finalizer(d.Name)) && !va.Status.Attached {
		return Record{}, false
	}
	return f.recordAt(nodeID)
}

// LastRecorded is Recorded for the last state of a VolumeAttachment that is gone. If that state is
// attached with neither finalizer nor node ID, a csi-attacher has marked the wrong object: its write
// was for another object of the same name, which was deleted just then (kubernetes/kubernetes issue
// 124749). The volume may be attached to the node, at the node ID that is registered now. For a driver
// without PUBLISH_UNPUBLISH_VOLUME that state is usual, and the driver attaches nothing.
func (d Driver) LastRecorded(f Inputs) (Record, bool) {
	if r, ok := d.Recorded(f); ok {
		return r, true
	}
	va := f.VolumeAttachment
	if !d.Capabilities.PublishUnpublish || !va.Status.Attached || NotedTarget(va).NodeID != "" {
		return Record{}, false
	}
	nodeID, registered := NodeID(f.CSINode, d.Name)
	if !registered || nodeID == "" {
		return Record{}, false
	}
	return f.recordAt(nodeID)
}

// recordAt returns the record of the volume of a VolumeAttachment at a node ID, and whether its
// handle is known.
func (f Inputs) recordAt(nodeID string) (Record, bool) {
	r, err := f.record()
	if err != nil || r.Target.VolumeHandle == "" {
		return Record{}, false
	}
	r.Target.NodeID = nodeID
	return r, true
}

// record returns the record of the volume that a VolumeAttachment has, or may have, attached, without the node ID.
func (f Inputs) record() (Record, error) {
	handle, source, err := f.attached()
	if err != nil || source == nil {
		return Record{Target: Target{VolumeHandle: handle}}, err
	}
	return Record{Target: Target{VolumeHandle: handle}, SecretRef: source.SecretRef, SecretKnown: true, Nodes: source.Nodes}, nil
}

// SurelyMultiNode reports whether the volume may be published at several nodes at once: its access
// mode is a MULTI_NODE one, as it was published and as its PersistentVolume says now, as far as
// either is known. v may be nil.
func (r Record) SurelyMultiNode(v *Volume) bool {
	now := UnknownNodes
	if v != nil && v.Handle == r.Target.VolumeHandle {
		now = v.Nodes
	}
	return now != SingleNode && r.Nodes != SingleNode && (now == MultiNode || r.Nodes == MultiNode)
}
