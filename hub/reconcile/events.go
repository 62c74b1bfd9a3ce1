package reconcile

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// Reasons of the Events on VolumeAttachments, on PersistentVolumes that are published where no VolumeAttachment asks
// for them, and on CSIDrivers.
const (
	attachFailed  = "AttachFailed"
	detachFailed  = "DetachFailed"
	attachStuck   = "AttachStuck"
	detachStuck   = "DetachStuck"
	foreignWriter = "ForeignWriter"
	detachGivenUp = "DetachGivenUp"
	noAttach      = "AttachRequiredFalse"
)

// Warn records a warning on an object. The recorder drops repetitions and bounds the rate.
func (l *Worker) Warn(object runtime.Object, reason, message string) {
	if recorder := l.Events; recorder != nil {
		recorder.Event(object, corev1.EventTypeWarning, reason, attach.Text(message))
	}
}

// reasonOf returns one of two reasons: of an attach, and of a detach.
func reasonOf(op attach.Operation, ofAttach, ofDetach string) string {
	if op == attach.Detaching {
		return ofDetach
	}
	return ofAttach
}

// formerObject returns what is known of a deleted VolumeAttachment, for Events and log lines about it.
func formerObject(id volume.Identity) *storagev1.VolumeAttachment {
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: id.Name, UID: id.UID}}
	va.Spec.NodeName, va.Spec.Source.PersistentVolumeName = id.Node, &id.PersistentVolume
	return va
}

// checkWriter reports a change of a VolumeAttachment that another attacher made during this term. Such an
// attacher ignores the lease: a sidecar without leader election, for example.
func (l *Worker) checkWriter(before, va *storagev1.VolumeAttachment) {
	if before == nil || before.UID != va.UID || l.isFromBeforeTerm(va) {
		return
	}
	manager, at := attach.ForeignWrite(before, va)
	if manager == "" {
		return
	}
	l.Metrics.ForeignWriter()
	l.Warn(va, foreignWriter, fmt.Sprintf("another attacher (%s) wrote status while this hub serves the driver", manager))
	if l.conflictLog.IsDue(manager, at) {
		l.VolumeLogger(va).Info("Another attacher writes VolumeAttachments of the driver, which this hub serves", "manager", manager,
			"wrote", "status", "at", at)
	}
	l.Conflict(status.ForeignWriter{Manager: manager, Time: at, VolumeAttachment: va.Name})
}

// StuckReason returns the reason of Events about an operation that is stuck.
func StuckReason(op attach.Operation) string { return reasonOf(op, attachStuck, detachStuck) }
