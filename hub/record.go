package hub

import (
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
)

// aspect is all of a VolumeAttachment that decides what is to be done for it. What
// else changes (errors, metadata, managed fields) is no reason to look at it again:
// an attacher's own error must not cut its own backoff (external-attacher issue 337).
type aspect struct {
	uid          types.UID
	deleting     bool
	attached     bool
	guarded      bool
	nodeID       string
	volumeHandle string
}

func aspectOf(va *storagev1.VolumeAttachment, finalizer string) aspect {
	return aspect{
		uid:          va.UID,
		deleting:     va.DeletionTimestamp != nil,
		attached:     va.Status.Attached,
		guarded:      attach.HasFinalizer(va.Finalizers, finalizer),
		nodeID:       va.Annotations[attach.AnnotationNodeID],
		volumeHandle: va.Annotations[attach.AnnotationVolumeHandle],
	}
}

// record is what this process knows of one VolumeAttachment besides the object.
// All that is not guarded by the ledger belongs to the worker that has its item.
type record struct {
	uid        types.UID
	attachment string // name of the VolumeAttachment
	node       string // name of the node
	volume     string // name of the PersistentVolume, "" without
	seen       aspect // as last decided on or written here; guarded by the ledger's mutex
	lost       bool   // the storage system does not have it attached; guarded by the ledger's mutex
	progress   attach.Progress
	told       attach.Progress // what the object's last state says, if it is gone; guarded by the ledger's mutex
	tries      tries
	failures   int          // in a row, to be shown; guarded by the ledger's mutex
	failure    string       // the last of them; guarded by the ledger's mutex
	aways      int          // sessions in a row that ended while the driver was called
	awayFrom   *liveSession // the last of them

	caughtUp *lease.Term // the object was read anew in that one, if that was needed

	witnessed time.Time // when it became an orphan, if that was another process' to see to; guarded by the ledger's mutex

	unowned unownedState // guarded by the ledger's mutex

	vanished time.Time // when the VolumeAttachment was found to be gone, if no worker has looked since; guarded by the ledger's mutex

	former    int           // how often in a row the driver did not detach the volume where it was
	abandoned attach.Target // where the volume was, which an orphan sees to now
}

func newRecord(va *storagev1.VolumeAttachment) *record {
	return &record{uid: va.UID, attachment: va.Name, node: va.Spec.NodeName, volume: attach.VolumeName(va)}
}

// tries counts failures of one operation in a row.
type tries struct {
	operation attach.Operation
	failures  int
	since     time.Time // the first of them
}

// failed counts one more failure and returns how many there were. Attach and
// detach do not share a count: the first detach after many failed attaches is
// not to wait.
func (t *tries) failed(op attach.Operation) int {
	if t.operation != op || t.failures == 0 {
		*t = tries{operation: op, since: time.Now()}
	}
	t.failures++
	return t.failures
}
