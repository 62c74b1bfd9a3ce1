package hub

import (
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// checkWriter reports a change of a VolumeAttachment that another attacher made during this term. Such an
// attacher ignores the lease: a sidecar without leader election, for example.
func (l *leader) checkWriter(before, va *storagev1.VolumeAttachment) {
	if before == nil || before.UID != va.UID || l.isFromBeforeTerm(va) {
		return
	}
	w, foreign := attach.ForeignWrite(before, va, l.finalizer)
	if !foreign {
		return
	}
	l.counters.metrics.ForeignWriter()
	l.events.conflict(va, w)
	if l.conflictLog.IsDue(w.Manager, w.Time) {
		l.volumeLogger(va).Info("Another attacher writes VolumeAttachments of the driver, which this hub serves", "manager", w.Manager,
			"wrote", w.What, "at", w.Time)
	}
	l.update(func(s *driverState) { s.conflict = conflictingWrite{w, va.Name} })
}
