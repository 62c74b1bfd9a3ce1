package explain

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/hubclient"
)

// Facts are all that was found out about one question, at one moment.
type Facts struct {
	Now      time.Time
	Question Question
	// Found: the object that was asked for exists.
	Found   bool
	Pod     *corev1.Pod // that was asked for, nil otherwise
	Volumes []Volume
	Hub     Hub
}

// Hub is what a running hub says.
type Hub struct {
	Err  error // why it could not be asked; nil if at least one replica has answered
	View hubclient.View
}

// Volume is what was found out about one volume and one node.
type Volume struct {
	// Mount is the name of the volume in the Pod, empty if none was asked for.
	Mount string
	// Inline is the driver of a CSI volume that stands in the Pod itself: there is
	// nothing to attach.
	Inline string
	// Migrated is an in-tree volume that stands in the Pod itself, translated to CSI: it
	// has no PersistentVolume and is attached. nil for all others.
	Migrated *corev1.PersistentVolumeSpec

	Namespace, ClaimName string // of the claim, empty without one
	Claim                Object[corev1.PersistentVolumeClaim]
	VolumeName           string // of the PersistentVolume, empty if not known
	PersistentVolume     Object[corev1.PersistentVolume]
	Users                Object[[]corev1.Pod] // Pods with the claim that are not at their end

	NodeName string // where it is to be attached, empty if nobody says
	Node     Object[corev1.Node]
	CSINode  Object[storagev1.CSINode]

	Driver    string // CSI driver of the volume, empty if it has none or is not known
	CSIDriver Object[storagev1.CSIDriver]

	// Attachment is the VolumeAttachment of the volume for the node, Others are the other
	// ones of the same volume.
	Attachment Object[storagev1.VolumeAttachment]
	Others     Object[[]storagev1.VolumeAttachment]

	Leases Leases
	Secret Secret

	Served *hubclient.Driver // nil: the hub does not serve the driver, or was not asked
	// Seen is the VolumeAttachment as the replica sees it that works for the driver.
	Seen Object[status.Attachment]
}

// Leases are those by which somebody may work for a driver.
type Leases struct {
	Name  string
	Where string // in which namespaces was looked, for people
	All   Object[[]coordinationv1.Lease]
	// OthersErr is why other namespaces than Where could not be looked into.
	OthersErr error
}

// unread reports whether there may be a lease that was not read.
func (l Leases) unread() bool { return l.All.Value() == nil || l.OthersErr != nil }

// Secret is what is known about the secret that goes with the calls for a volume. Its
// contents are never read.
type Secret struct {
	Namespace, Name string // empty: the volume needs none, or it is not known
	Object          Object[struct{}]
}

// spec returns the specification of the volume, nil if it is not known.
func (v *Volume) spec() *corev1.PersistentVolumeSpec {
	if va := v.Attachment.Value(); va != nil && va.Spec.Source.InlineVolumeSpec != nil {
		return va.Spec.Source.InlineVolumeSpec
	}
	if pv := v.PersistentVolume.Value(); pv != nil {
		return &pv.Spec
	}
	return v.Migrated
}

// ofThisClaim reports whether the claim, which has the name that the PersistentVolume
// gives, is the one that the volume is bound to, and not another one made later under that
// name. Where it is not known, it is.
func (v *Volume) ofThisClaim() bool {
	pv, claim := v.PersistentVolume.Value(), v.Claim.Value()
	if pv == nil || claim == nil {
		return true
	}
	if bound := pv.Spec.ClaimRef; bound != nil && bound.UID != "" && bound.UID != claim.UID {
		return false
	}
	return claim.Spec.VolumeName == "" || claim.Spec.VolumeName == pv.Name
}
