package explain

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/hubclient"
)

// Facts are the findings of Gather about one question, at one moment.
type Facts struct {
	Now      time.Time
	Question Question
	Access   []string // of Sources
	// Found: the object of the question exists.
	Found   bool
	Pod     *corev1.Pod // of the question; nil for other kinds
	Volumes []Volume
	Hub     Hub

	// Subject is the driver or the node of the question: a Volume with what is known of these alone. nil for other
	// kinds.
	Subject *Volume
	// Checks are the checklist of the driver of the question; not read if the hub does not serve it.
	Checks Object[[]status.Check]
	// Listed are the VolumeAttachments of the driver or the node. Volumes are those of them that are explained,
	// the worst first; Settled are those that are attached and have no trouble; More counts the rest that is in trouble.
	Listed  Object[[]storagev1.VolumeAttachment]
	Settled []Volume
	More    int
	RowsErr error // why the hub did not say all about these
	// Calls are those of them with a call in flight, as the hub sees them, the oldest first.
	Calls []status.Attachment
}

// Hub is the answer of a running hub.
type Hub struct {
	Err  error // why no replica has answered; nil if at least one has
	View hubclient.View
}

// Volume has the findings about one volume and one node.
type Volume struct {
	Health status.HealthState // of the VolumeAttachment; only if the question is about many

	// Mount is the name of the volume in the Pod; empty if the question is not about a Pod.
	Mount string
	// Inline is the driver of a CSI volume in the spec of the Pod, which needs no attach.
	Inline string
	// Migrated is an in-tree volume in the spec of the Pod, translated to CSI. It needs an attach
	// and has no PersistentVolume. nil for all others.
	Migrated *corev1.PersistentVolumeSpec

	Namespace, ClaimName string // of the claim, empty without one
	Claim                Object[corev1.PersistentVolumeClaim]
	VolumeName           string // of the PersistentVolume, empty if not known
	PersistentVolume     Object[corev1.PersistentVolume]
	Users                Object[[]corev1.Pod] // Pods with the claim that have not ended

	NodeName string // where the volume is needed, empty if not known
	Node     Object[corev1.Node]
	CSINode  Object[storagev1.CSINode]

	Driver    string // CSI driver of the volume, empty if it has none or is not known
	CSIDriver Object[storagev1.CSIDriver]

	// Attachment is the VolumeAttachment of the volume for the node. Others are the other
	// VolumeAttachments of the volume.
	Attachment Object[storagev1.VolumeAttachment]
	Others     Object[[]storagev1.VolumeAttachment]

	Leases Leases
	Secret Secret

	// Holders are the Pods in the namespace of the driver's lease, of which one may hold it; not read if not needed.
	Holders Object[[]corev1.Pod]
	// OtherNode is the node to which the volume is attached instead; not read if that is not the stop.
	OtherNode Object[corev1.Node]

	Served *hubclient.Driver // nil: the hub does not serve the driver, or was not asked
	// Seen is the VolumeAttachment as the replica that works for the driver sees it.
	Seen Object[status.Attachment]
	// Reported is what the driver says about the health of the volume; not read if the driver cannot say it.
	Reported Object[status.VolumeHealth]
}

// Leases are the leases of a driver, by their name in several namespaces.
type Leases struct {
	Name  string
	Where string // the namespaces of All, for people
	All   Object[[]coordinationv1.Lease]
	// OthersErr is why other namespaces than Where could not be read.
	OthersErr error
}

// unread reports whether there may be a lease that was not read.
func (l Leases) unread() bool { return l.All.Value() == nil || l.OthersErr != nil }

// Secret says whether the secret of the calls for a volume exists. Its contents are never read.
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

// ofThisClaim reports whether the volume is bound to the claim, and not to an earlier claim of the
// same name. It returns true if one of the two is not known.
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
