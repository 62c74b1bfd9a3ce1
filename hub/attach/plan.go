package attach

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// Target is where a volume is, or may be, attached.
type Target struct {
	VolumeHandle string
	NodeID       string
}

// Plan is what has to be done for one VolumeAttachment. Steps that are not
// needed are nil.
type Plan struct {
	Operation  Operation
	attachment *storagev1.VolumeAttachment // what the plan was made for
	// Target of the CSI call. Empty where the plan has no call.
	Target Target
	// SingleNode: the volume must not be attached to two nodes, or, for a detach, its access
	// mode is not known.
	SingleNode bool
	// SecretRef is the secret that goes with the call, nil for none.
	SecretRef *corev1.SecretReference

	// GuardVolume and GuardAttachment put the finalizer on the PersistentVolume and
	// the finalizer and annotations on the VolumeAttachment.
	GuardVolume     *Patch
	GuardAttachment *Patch
	// Publish is the call to make, without secrets. Nil in a plan to attach means
	// that the driver has nothing to be called for.
	Publish *csi.ControllerPublishVolumeRequest
	// MarkAttached: the status is to be written.
	MarkAttached bool
	// Unpublish is the call to make, without secrets; nil as for Publish.
	Unpublish *csi.ControllerUnpublishVolumeRequest
	// Release takes the finalizer from the VolumeAttachment.
	Release *Patch
}

// Decide says what a VolumeAttachment needs. The error says why it cannot be
// done as things are: what is missing, or wrong in the objects.
func (d Driver) Decide(f Facts) (Plan, error) {
	switch d.Wanted(f.VolumeAttachment) {
	case Attaching:
		return d.decideAttach(f)
	case Detaching:
		return d.decideDetach(f)
	}
	if f.Lost && f.VolumeAttachment.DeletionTimestamp == nil {
		return d.decideAttach(f)
	}
	return Plan{}, nil
}

func (d Driver) decideAttach(f Facts) (Plan, error) {
	va, pv := f.VolumeAttachment, f.PersistentVolume
	plan := Plan{Operation: Attaching, attachment: va, MarkAttached: !va.Status.Attached || f.Lost}
	if !d.Capabilities.PublishUnpublish {
		return plan, nil
	}
	if va.Status.Attached && !f.Lost { // only the finalizer is missing
		plan.GuardAttachment = guardAttachment(va, Finalizer(d.Name), NotedTarget(va))
		return plan, nil
	}
	specOfVolume := volumeSpec
	if va.Status.Attached { // it is attached again, and must stay the same volume
		specOfVolume = attachedSpec
	}
	spec, err := specOfVolume(va, pv)
	if err != nil {
		return Plan{}, err
	}
	if pv != nil && pv.DeletionTimestamp != nil {
		return Plan{}, fmt.Errorf("persistentvolume %q %w", pv.Name, errVolumeBeingDeleted)
	}
	capability, err := volumeCapability(spec, d.DefaultFSType, d.Capabilities)
	if err != nil {
		return Plan{}, err
	}
	nodeID, err := d.nodeID(f, false)
	if err != nil {
		return Plan{}, err
	}
	plan.Target = Target{VolumeHandle: spec.CSI.VolumeHandle, NodeID: nodeID}
	plan.SingleNode = nodeModeOf(capability.AccessMode.Mode) != MultiNode
	plan.SecretRef = spec.CSI.ControllerPublishSecretRef
	plan.GuardAttachment = guardAttachment(va, Finalizer(d.Name), plan.Target)
	if pv != nil {
		plan.GuardVolume = guardVolume(pv, Finalizer(d.Name))
	}
	plan.Publish = &csi.ControllerPublishVolumeRequest{
		VolumeId:         spec.CSI.VolumeHandle,
		NodeId:           nodeID,
		VolumeCapability: capability,
		Readonly:         spec.CSI.ReadOnly && d.Capabilities.PublishReadonly,
		VolumeContext:    spec.CSI.VolumeAttributes,
	}
	return plan, nil
}

func (d Driver) decideDetach(f Facts) (Plan, error) {
	va := f.VolumeAttachment
	plan := Plan{Operation: Detaching, attachment: va, Release: releaseAttachment(va, Finalizer(d.Name))}
	if !d.Capabilities.PublishUnpublish {
		// The driver attached once and came back without that capability. Unless its
		// CSIDriver says the same, that may be a mistake, and nothing proves the volume
		// detached.
		if d.NoAttach {
			return plan, nil
		}
		return Plan{}, errors.New("the driver no longer has PUBLISH_UNPUBLISH_VOLUME and cannot be asked to detach what it attached: give it back, or set attachRequired of its CSIDriver to false")
	}
	handle, spec, err := attachedVolume(va, f.PersistentVolume)
	if err != nil {
		return Plan{}, err
	}
	nodes := UnknownNodes
	if spec != nil {
		plan.SecretRef = spec.CSI.ControllerPublishSecretRef
		nodes = specNodes(spec, handle)
	}
	nodeID, err := d.nodeID(f, true)
	if err != nil {
		return Plan{}, err
	}
	plan.Target = Target{VolumeHandle: handle, NodeID: nodeID}
	plan.SingleNode = nodes != MultiNode
	plan.Unpublish = &csi.ControllerUnpublishVolumeRequest{VolumeId: handle, NodeId: nodeID}
	return plan, nil
}

// NotedTarget is where a VolumeAttachment is noted to have its volume attached. What is not
// noted is empty: csi-attacher notes no volume handle.
func NotedTarget(va *storagev1.VolumeAttachment) Target {
	return Target{VolumeHandle: va.Annotations[AnnotationVolumeHandle], NodeID: va.Annotations[AnnotationNodeID]}
}

// Wants says whether a VolumeAttachment may want its volume where the target is, or is
// noted to have it there, and whether that is sure: what would tell, the PersistentVolume
// or the CSINode, may not be there now.
func (d Driver) Wants(f Facts, t Target) (may, surely bool) {
	noted := NotedTarget(f.VolumeAttachment)
	if noted == t {
		return true, true
	}
	handle, nodeID := noted.VolumeHandle, noted.NodeID
	if handle == "" && (nodeID != "" || f.VolumeAttachment.Status.Attached) {
		handle, _, _ = attachedVolume(f.VolumeAttachment, f.PersistentVolume)
	} else if spec, err := volumeSpec(f.VolumeAttachment, f.PersistentVolume); err == nil {
		handle = cmp.Or(handle, spec.CSI.VolumeHandle)
	}
	// An attached volume is never moved from where it is noted.
	stays := nodeID != "" && f.VolumeAttachment.Status.Attached && f.VolumeAttachment.DeletionTimestamp == nil
	if id, ok := nodeIDFrom(f.CSINode, d.Name); ok && !stays && nodeID != t.NodeID {
		nodeID = id
	}
	if handle == "" && ofAnotherVolume(f.VolumeAttachment, t.VolumeHandle) {
		return false, false
	}
	may = (handle == "" || handle == t.VolumeHandle) && (nodeID == "" || nodeID == t.NodeID)
	return may, may && handle != "" && nodeID != ""
}

// IsCurrent reports whether the driver has not registered the node under another node ID than that
// of the plan's Target: a node can come back under another one while the driver is called. A CSINode
// that is gone (nil), or lacks the driver, is no change: the driver may be restarting there. A plan
// without a call is current.
func (d Driver) IsCurrent(plan Plan, node *storagev1.CSINode) bool {
	id, registered := nodeIDFrom(node, d.Name)
	return !registered || plan.Target.NodeID == "" || id == plan.Target.NodeID
}

// nodeID returns the driver's ID of the node: what the driver registered there,
// and, for a detach, what was written down when the volume was attached.
func (d Driver) nodeID(f Facts, detaching bool) (string, error) {
	va := f.VolumeAttachment
	if id, ok := nodeIDFrom(f.CSINode, d.Name); ok {
		return id, nil
	}
	if id := va.Annotations[AnnotationNodeID]; detaching && id != "" {
		return id, nil
	}
	if f.CSINode == nil {
		return "", fmt.Errorf("csinode %q not found: %w", va.Spec.NodeName, errNodeWithoutCSI)
	}
	return "", fmt.Errorf("csinode %q does not contain driver %q: %w", va.Spec.NodeName, d.Name, errNodeWithoutDriver)
}

// ReleaseVolume returns the patch that takes the driver's finalizer from a
// PersistentVolume, nil if it is to stay or is not there. used says whether any
// VolumeAttachment still names the volume.
func (d Driver) ReleaseVolume(pv *corev1.PersistentVolume, used bool) *Patch {
	if used || !Leaving(pv, d.Name) {
		return nil
	}
	return removeFinalizer(pv, pv.Finalizers, Finalizer(d.Name))
}
