package attach

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
)

// Inputs are the inputs of a decision about one VolumeAttachment. The objects belong to caches and
// are never changed.
type Inputs struct {
	VolumeAttachment *storagev1.VolumeAttachment
	PersistentVolume *Volume            // nil: inline volume, or not found
	CSINode          *storagev1.CSINode // nil: not found
	// Lost: the status says attached, and ListVolumes does not report the volume on the node.
	Lost bool
	// Unpublished: ControllerUnpublishVolume has succeeded since the last publish.
	Unpublished bool
	// Published is the record of a publish that has succeeded, and that the status does not have yet. Nil: there is none.
	Published *Record
}

// Driver has the inputs of decisions that are the same for all objects of a CSI driver.
type Driver struct {
	Name          string // of the CSI driver
	Capabilities  csiclient.Capabilities
	DefaultFSType string // for PersistentVolumes without a file system type
	// NoAttach: the CSIDriver object says attachRequired=false. Kubernetes then creates no
	// VolumeAttachments and does not delete the old ones.
	NoAttach bool
}

// RecordedCalls returns how many VolumeAttachments record that an attacher called the driver, for a driver that cannot be
// called: an attacher writes the finalizer and the node ID before a call, and neither for a driver without
// PUBLISH_UNPUBLISH_VOLUME. So the driver has lost the capability, or its endpoint is that of its node plugin, which never
// had it. It returns 0 for all other drivers.
func (d Driver) RecordedCalls(attachmentsOf func(driver string) []*storagev1.VolumeAttachment) int {
	if d.Capabilities.PublishUnpublish || d.NoAttach {
		return 0
	}
	n := 0
	for _, va := range attachmentsOf(d.Name) {
		if d.RecordsCall(va) {
			n++
		}
	}
	return n
}

// RecordsCall reports whether a VolumeAttachment records that an attacher called the driver.
func (d Driver) RecordsCall(va *storagev1.VolumeAttachment) bool {
	return va.Annotations[AnnotationNodeID] != "" || HasFinalizer(va.Finalizers, Finalizer(d.Name))
}

// Operation is the operation that a VolumeAttachment requires.
type Operation int8

const (
	// Idle: none.
	Idle Operation = iota
	// Attaching: attach the volume, or restore the finalizer.
	Attaching
	// Detaching: detach the volume and remove the finalizer.
	Detaching
)

// String returns "idle", "attach" or "detach".
func (o Operation) String() string {
	switch o {
	case Attaching:
		return "attach"
	case Detaching:
		return "detach"
	}
	return "idle"
}

// Since returns when the operation was required, by the times in the object, which a restart of the hub does not change. It is
// zero for the repair of an attached volume, which no client has requested.
func (o Operation) Since(va *storagev1.VolumeAttachment) time.Time {
	switch {
	case o == Detaching && va.DeletionTimestamp != nil:
		return va.DeletionTimestamp.Time
	case o == Attaching && !va.Status.Attached:
		return va.CreationTimestamp.Time
	}
	return time.Time{}
}

// IsStuck reports whether the operation was required that long ago, and has had no success since.
func (o Operation) IsStuck(va *storagev1.VolumeAttachment, after time.Duration, now time.Time) bool {
	since := o.Since(va)
	return !since.IsZero() && now.Sub(since) >= after
}

// LastError returns the error of the operation in the status, nil if there is none.
func (o Operation) LastError(va *storagev1.VolumeAttachment) *storagev1.VolumeError {
	switch o {
	case Attaching:
		return va.Status.AttachError
	case Detaching:
		return va.Status.DetachError
	}
	return nil
}

// RequiredOperation is Required by the object alone. It is cheap enough for every event.
func (d Driver) RequiredOperation(va *storagev1.VolumeAttachment) Operation {
	return d.Required(Inputs{VolumeAttachment: va})
}

// Required returns the operation that a VolumeAttachment requires, by the object and by what is believed of its volume.
func (d Driver) Required(f Inputs) Operation {
	va := f.VolumeAttachment
	hasFinalizer := HasFinalizer(va.Finalizers, Finalizer(d.Name))
	switch {
	// Detached before, or never attached, unless it has the finalizer or says otherwise. With attachRequired false nobody else
	// would detach it (kubernetes/kubernetes issue 129572).
	case va.DeletionTimestamp != nil || d.NoAttach:
		if hasFinalizer || va.Status.Attached && f.Unpublished {
			return Detaching
		}
		return Idle
	case !va.Status.Attached, f.Lost, f.Unpublished:
		return Attaching
	// A client has removed the finalizer: the noted node ID is there, which attachers write together with the finalizer. Without
	// the finalizer the object would disappear on deletion while its volume stays attached (kubernetes/kubernetes issue 116663).
	case !hasFinalizer && va.Annotations[AnnotationNodeID] != "" && d.Capabilities.PublishUnpublish:
		return Attaching
	}
	return Idle
}

// MayBeAttached reports whether the volume of a VolumeAttachment may be attached, or its driver's finalizer has
// to be removed. The finalizer is removed before the status says that the volume is detached.
func MayBeAttached(va *storagev1.VolumeAttachment) bool {
	return HasFinalizer(va.Finalizers, Finalizer(va.Spec.Attacher)) || va.Status.Attached && va.Annotations[AnnotationNodeID] != ""
}

// HasStaleError reports whether a VolumeAttachment still has the detachError of a detach that is not required any more:
// attachRequired was false for a while.
func (d Driver) HasStaleError(va *storagev1.VolumeAttachment) bool {
	return va.Status.DetachError != nil && va.Status.Attached && va.DeletionTimestamp == nil && !d.NoAttach
}

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
	if va := f.VolumeAttachment; !HasFinalizer(va.Finalizers, Finalizer(d.Name)) && !va.Status.Attached {
		return Record{}, false
	}
	return f.recordAt(NotedTarget(f.VolumeAttachment).NodeID)
}

// LastRecorded is Recorded for the last state of a VolumeAttachment that is gone. If that state is
// attached with neither finalizer nor node ID, a csi-attacher has marked the wrong object: its write
// was for another object of the same name, which was deleted just then (kubernetes/kubernetes issue
// 124749). The volume may be attached to the node, at the node ID that is registered now. For a driver
// without PUBLISH_UNPUBLISH_VOLUME that state is usual, and the driver attaches nothing.
func (d Driver) LastRecorded(f Inputs) (Record, bool) {
	if va := f.VolumeAttachment; d.Capabilities.PublishUnpublish && va.Status.Attached && NotedTarget(va).NodeID == "" {
		nodeID, _ := NodeID(f.CSINode, d.Name)
		return f.recordAt(nodeID)
	}
	return d.Recorded(f)
}

// recordAt returns the record of the volume of a VolumeAttachment at a node ID, and whether its
// handle and the node ID are known.
func (f Inputs) recordAt(nodeID string) (Record, bool) {
	r, err := f.record()
	if err != nil || r.Target.VolumeHandle == "" || nodeID == "" {
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
	return source.Record(""), nil
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
