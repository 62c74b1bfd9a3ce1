package explain

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/hubclient"
)

// Object is one object that was looked for: its Value, or why it could not be read. With
// neither there is none, or there was no reason to look.
type Object[T any] struct {
	Value *T
	Err   error
}

// Missing says that there is no such object.
func (o Object[T]) Missing() bool { return o.Value == nil && o.Err == nil }

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

	Namespace, ClaimName string // of the claim, empty without one
	Claim                Object[corev1.PersistentVolumeClaim]
	VolumeName           string // of the PersistentVolume, empty if not known
	PersistentVolume     Object[corev1.PersistentVolume]
	Users                []corev1.Pod // Pods with the claim that are not at their end
	UsersErr             error        // why they could not be read

	NodeName string // where it is to be attached, empty if nobody says
	Node     Object[corev1.Node]
	CSINode  Object[storagev1.CSINode]

	Driver    string // CSI driver of the volume, empty if it has none or is not known
	CSIDriver Object[storagev1.CSIDriver]

	// Attachment is the VolumeAttachment of the volume for the node, Others are those of
	// the same volume for other nodes.
	Attachment Object[storagev1.VolumeAttachment]
	Others     []storagev1.VolumeAttachment

	Leases Leases
	Secret Secret

	Served *hubclient.Driver  // nil: the hub does not serve the driver, or was not asked
	Seen   *status.Attachment // the VolumeAttachment as the replica sees it that works for the driver
	// SeenErr is why that replica could not be asked about it.
	SeenErr error
}

// Leases are those by which somebody may work for a driver.
type Leases struct {
	Name  string
	Where string // in which namespaces was looked, for people
	All   []coordinationv1.Lease
	Err   error // why they could not be read
}

// Secret is what is known about the secret that goes with the calls for a volume. Its
// contents are never read.
type Secret struct {
	Namespace, Name string // empty: the volume needs none
	Exists          bool
	Err             error // why it is not known whether it exists
}
