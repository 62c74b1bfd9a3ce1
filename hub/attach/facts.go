package attach

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
)

// Driver is what a decision depends on besides the objects.
type Driver struct {
	Name          string // of the CSI driver
	Capabilities  csiclient.Capabilities
	DefaultFSType string // where a PersistentVolume names none
	// NoAttach: the CSIDriver object says attachRequired=false. Nobody asks for new
	// attachments then, and nobody would ever delete the old ones.
	NoAttach bool
}

// Facts are all that is known about one VolumeAttachment at one moment. Nothing
// in them is ever changed: the objects belong to caches.
type Facts struct {
	VolumeAttachment *storagev1.VolumeAttachment
	PersistentVolume *corev1.PersistentVolume // nil: inline volume, or there is none
	CSINode          *storagev1.CSINode       // nil: there is none
	// Lost: the status says attached, and the storage system has it otherwise.
	Lost bool
}

// Operation is what a VolumeAttachment asks for, before anything else is looked at.
type Operation int8

const (
	// Idle: there is nothing to do.
	Idle Operation = iota
	// Attaching: the volume is to be attached, or its finalizer is to be put back.
	Attaching
	// Detaching: the volume is to be detached and the finalizer taken away.
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

// Wanted says what a VolumeAttachment asks for. It needs no other object, so that
// it can be asked on every event.
func (d Driver) Wanted(va *storagev1.VolumeAttachment) Operation {
	guarded := HasFinalizer(va.Finalizers, Finalizer(d.Name))
	switch {
	case va.DeletionTimestamp != nil && guarded:
		return Detaching
	case va.DeletionTimestamp != nil:
		return Idle // detached before, or never attached
	case d.NoAttach && guarded:
		// kubernetes/kubernetes issue 129572: left alone it would stay for ever.
		return Detaching
	case d.NoAttach:
		return Idle
	case !va.Status.Attached:
		return Attaching
	case stripped(va, guarded) && d.Capabilities.PublishUnpublish:
		return Attaching
	}
	return Idle
}

// stripped says that somebody took the finalizer from an attached volume: node ID
// and finalizer are only ever written together. Without the finalizer the
// object would vanish on deletion with the volume left attached
// (kubernetes/kubernetes issue 116663).
func stripped(va *storagev1.VolumeAttachment, guarded bool) bool {
	return !guarded && va.Status.Attached && va.Annotations[AnnotationNodeID] != ""
}
