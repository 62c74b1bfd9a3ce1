package attach

import (
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	storagev1 "k8s.io/api/storage/v1"
)

// Plan is the steps that one VolumeAttachment needs. Steps that it does not need are nil.
type Plan struct {
	Operation Operation
	Record    // of the CSI call. Empty if the plan has no call.

	// VolumeFinalizer adds the finalizer to the PersistentVolume, AttachmentFinalizer the finalizer
	// and the annotations to the VolumeAttachment.
	VolumeFinalizer     *Patch
	AttachmentFinalizer *Patch
	// Publish is the call of a plan to attach, without secrets. Nil: the driver publishes nothing.
	Publish *csi.ControllerPublishVolumeRequest
	// MarkAttached: the status must be written.
	MarkAttached bool
	// StatusFirst: the status of the VolumeAttachment to detach is written before all else, because it is not being
	// deleted, or its volume is detached already.
	StatusFirst bool
}

// Target is a volume and a node that it is, or may be, attached to.
type Target struct {
	VolumeHandle string
	NodeID       string
}

// Decide returns the plan for a VolumeAttachment. The plan is empty if the VolumeAttachment requires
// no operation. The error says what is missing or wrong in the objects; diagnosis.Parse knows its text.
func (d Driver) Decide(f Inputs) (Plan, error) {
	va := f.VolumeAttachment
	switch op := d.Required(f); {
	case op == Attaching:
		return d.decideAttach(f)
	case op == Detaching && !HasFinalizer(va.Finalizers, Finalizer(d.Name)): // the status alone says attached
		return Plan{Operation: Detaching, StatusFirst: true}, nil
	case op == Detaching:
		return d.decideDetach(f)
	}
	return Plan{}, nil
}

func (d Driver) decideAttach(f Inputs) (Plan, error) {
	va, pv := f.VolumeAttachment, f.PersistentVolume
	plan := Plan{Operation: Attaching, MarkAttached: !va.Status.Attached || f.Lost || f.Unpublished}
	if !d.Capabilities.PublishUnpublish {
		return plan, nil
	}
	if !plan.MarkAttached { // only the finalizer is missing
		plan.AttachmentFinalizer = addAttachmentFinalizer(va, Finalizer(d.Name), NotedTarget(va))
		return plan, nil
	}
	if d.onlyMarks(f) {
		plan.Record = *f.Published
		if pv != nil && (pv.Deleted != nil || pv.Handle != plan.Target.VolumeHandle) {
			pv = nil
		}
	} else {
		var err error
		if plan.Record, plan.Publish, err = d.publish(f); err != nil {
			return Plan{}, err
		}
	}
	plan.AttachmentFinalizer = addAttachmentFinalizer(va, Finalizer(d.Name), plan.Target)
	if pv != nil {
		plan.VolumeFinalizer = newPatch(pv.meta(), addFinalizer(pv.meta(), Finalizer(d.Name))...)
	}
	return plan, nil
}

// publish returns the call that attaches the volume, with its record.
func (d Driver) publish(f Inputs) (r Record, call *csi.ControllerPublishVolumeRequest, err error) {
	source, err := f.source()
	if f.VolumeAttachment.Status.Attached { // attached again: it must be the same volume
		source, err = f.attachedAgain()
	}
	if err != nil {
		return r, nil, err
	}
	if pv := f.PersistentVolume; pv != nil && pv.Deleted != nil {
		return r, nil, fmt.Errorf("persistentvolume %q is being deleted", pv.Name)
	}
	capability, err := d.capability(source)
	if err != nil {
		return r, nil, err
	}
	nodeID, err := d.nodeID(f, false)
	if err != nil {
		return r, nil, err
	}
	return source.Record(nodeID), &csi.ControllerPublishVolumeRequest{
		VolumeId:         source.Handle,
		NodeId:           nodeID,
		VolumeCapability: capability,
		Readonly:         source.ReadOnly && d.Capabilities.PublishReadonly,
		VolumeContext:    source.context(),
	}, nil
}

// onlyMarks reports whether a publish has succeeded where the VolumeAttachment notes, so that only the status is left to be
// written: a PersistentVolume or an entry of the CSINode that is missing by now is no error. It is not so if the driver has
// registered another node ID.
func (d Driver) onlyMarks(f Inputs) bool {
	if f.Published == nil || f.Published.Target != NotedTarget(f.VolumeAttachment) {
		return false
	}
	id, registered := NodeID(f.CSINode, d.Name)
	return !registered || id == f.Published.Target.NodeID
}

func (d Driver) decideDetach(f Inputs) (Plan, error) {
	va := f.VolumeAttachment
	plan := Plan{Operation: Detaching, StatusFirst: va.Status.Attached && va.DeletionTimestamp == nil}
	if !d.Capabilities.PublishUnpublish {
		// The driver attached the volume and has lost the capability since. Unless its CSIDriver has
		// attachRequired=false too, that may be a mistake, and the volume may be attached.
		if d.NoAttach {
			return plan, nil
		}
		return Plan{}, errors.New("the driver no longer has PUBLISH_UNPUBLISH_VOLUME and cannot be asked to detach what it attached: correct the endpoint if it is that of the driver's node plugin, give the capability back, or replace its CSIDriver by one with attachRequired: false")
	}
	var err error
	if plan.Record, err = f.record(); err == nil {
		plan.Target.NodeID, err = d.nodeID(f, true)
	}
	if err != nil {
		return Plan{}, err
	}
	return plan, nil
}

// NotedTarget returns the target in the annotations of a VolumeAttachment. A field without an
// annotation is empty: csi-attacher notes no volume handle.
func NotedTarget(va *storagev1.VolumeAttachment) Target {
	return Target{VolumeHandle: va.Annotations[AnnotationVolumeHandle], NodeID: va.Annotations[AnnotationNodeID]}
}

// NamesTarget reports whether a VolumeAttachment may have a target, by its note or by its volume and
// node, and whether it surely does. Without a note that is not sure if the PersistentVolume or the
// CSINode is missing.
func (d Driver) NamesTarget(f Inputs, t Target) (may, surely bool) {
	noted := NotedTarget(f.VolumeAttachment)
	if noted == t {
		return true, true
	}
	handle, nodeID := HandleOf(f), noted.NodeID
	// An attached volume is never moved from its noted target.
	stays := nodeID != "" && f.VolumeAttachment.Status.Attached && f.VolumeAttachment.DeletionTimestamp == nil
	if id, ok := NodeID(f.CSINode, d.Name); ok && !stays && nodeID != t.NodeID {
		nodeID = id
	}
	if handle == "" && OfAnotherVolume(f.VolumeAttachment, t.VolumeHandle) {
		return false, false
	}
	may = (handle == "" || handle == t.VolumeHandle) && (nodeID == "" || nodeID == t.NodeID)
	return may, may && handle != "" && nodeID != ""
}

// nodeID returns the node ID that the driver registered or, for a detach, the noted node ID.
func (d Driver) nodeID(f Inputs, detaching bool) (string, error) {
	va := f.VolumeAttachment
	if id, ok := NodeID(f.CSINode, d.Name); ok {
		return id, nil
	}
	if id := va.Annotations[AnnotationNodeID]; detaching && id != "" {
		return id, nil
	}
	if f.CSINode == nil {
		return "", fmt.Errorf("csinode %q not found: the node is gone, or its kubelet has registered no CSI driver yet", va.Spec.NodeName)
	}
	return "", fmt.Errorf("csinode %q does not contain driver %q: the driver's node plugin is not registered there", va.Spec.NodeName, d.Name)
}
