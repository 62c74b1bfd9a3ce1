package attach

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// Progress is what this process has done for one VolumeAttachment. It makes a
// retry repeat only the step that failed, and it is what is left to clean up by
// when the object vanishes. The zero value knows nothing. It belongs to whoever
// works on the VolumeAttachment; it is not safe for concurrent use.
type Progress struct {
	// Target and SecretRef of the last call that may have attached the volume.
	Target    Target
	SecretRef *corev1.SecretReference

	// nodes is the mode of that call, or what the volume said when the object of another
	// process' call was taken over.
	nodes   NodeMode
	state   publication
	context map[string]string // publish context that is not in the status yet
	// secretKnown: SecretRef is that of the volume, also if it is nil.
	secretKnown bool
	// secrets of the last call that succeeded, for a detach when the secret is gone.
	// They are kept in memory only, and only as long as the volume is attached.
	secrets map[string]string
}

// publication is where a volume stands with the storage system, as far as this
// process made the calls.
type publication int8

const (
	unknown     publication = iota
	uncertain               // ControllerPublishVolume was called and did not succeed, so far
	published               // it succeeded, the status does not say so yet
	recorded                // and the status says so
	unpublished             // ControllerUnpublishVolume succeeded after it
)

// MayBeAttached says that a call of this process may have left the volume
// attached: it was published, or publishing it ended in an error or in a time-out
// (which prove nothing), and no unpublishing has succeeded since.
func (p *Progress) MayBeAttached() bool {
	return p.state == uncertain || p.state == published || p.state == recorded
}

// SecretKnown reports whether it is known which secret belongs to the calls for the volume:
// SecretRef, or none if that is nil.
func (p *Progress) SecretKnown() bool { return p.secretKnown }

// Adopt takes over what another process has done, from the object: a node ID beside a
// finalizer, or beside a status that says attached, says that the volume may be. pv may
// be nil. It does nothing where this process knows more.
func (p *Progress) Adopt(va *storagev1.VolumeAttachment, pv *corev1.PersistentVolume, finalizer string) {
	nodeID := va.Annotations[AnnotationNodeID]
	if p.state != unknown || nodeID == "" || !HasFinalizer(va.Finalizers, finalizer) && !va.Status.Attached {
		return
	}
	handle, spec, err := attachedVolume(va, pv)
	if err != nil || handle == "" {
		return
	}
	p.Target, p.state = Target{VolumeHandle: handle, NodeID: nodeID}, recorded
	if spec != nil {
		p.SecretRef, p.secretKnown = spec.CSI.ControllerPublishSecretRef, true
		p.nodes = specNodes(spec, handle)
	}
}

// AdoptLast is Adopt for the last state of a VolumeAttachment that is gone. One that says attached
// with neither finalizer nor node ID was marked so by a csi-attacher whose write was meant for another
// object of the same name, which was deleted just then (kubernetes/kubernetes issue 124749):
// its volume may be attached to the node, by the ID that the node has now. A driver
// without PUBLISH_UNPUBLISH_VOLUME has all its VolumeAttachments that way, and attaches nothing.
func (p *Progress) AdoptLast(d Driver, last Facts) {
	va := last.VolumeAttachment
	p.Adopt(va, last.PersistentVolume, Finalizer(d.Name))
	if p.state != unknown || !d.Capabilities.PublishUnpublish || !va.Status.Attached || va.Annotations[AnnotationNodeID] != "" {
		return
	}
	handle, spec, err := attachedVolume(va, last.PersistentVolume)
	nodeID, registered := nodeIDFrom(last.CSINode, d.Name)
	if err != nil || !registered || nodeID == "" || handle == "" {
		return
	}
	p.Target, p.state = Target{VolumeHandle: handle, NodeID: nodeID}, recorded
	if spec != nil {
		p.SecretRef, p.secretKnown = spec.CSI.ControllerPublishSecretRef, true
	}
}

// Inherit takes over what is known otherwise, where this process knows nothing.
func (p *Progress) Inherit(known Progress) {
	if p.state == unknown {
		*p = known
	}
}
