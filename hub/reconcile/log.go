package reconcile

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
	"github.com/csi-attach-hub/csi-attach-hub/internal/loglimit"
)

// Limits of the log lines of one driver at the default verbosity, for each message: all volumes of a driver may
// fail at once.
const (
	logBurst = 20
	logEvery = time.Second
)

// logFailed logs a try of an item that failed, as an error. At every verbosity it logs the first of a number of tries in a row that failed,
// then the same cause every ten minutes, and another cause a minute after the last line at the earliest. With V(2) it logs every try.
// A first try that met a change of an object is no failure to anybody if it is repeated at once: it is an info line at V(2).
func (w *Worker) logFailed(logger klog.Logger, e *queue.Item, op attach.Operation, tries int, cause diagnosis.Cause, retryIn time.Duration, err error) {
	name, now := cmp.Or(cause.Code, string(cause.Verdict)), time.Now()
	if tries == 1 && retryIn == 0 && errors.Is(err, attach.ErrStale) {
		e.Retries.Log = loglimit.Problem{} // the next try counts as the first
		logger.V(2).Info(titleOf(op)+" met a change of the object, trying again", "operation", op.String(), "err", err)
		return
	}
	due := e.Retries.Log.IsDue(name, now)
	if tries == 1 { // a detach that follows a failed attach, too
		e.Retries.Log.Logged(name, now)
		due = true
	}
	values := []any{"operation", op.String(), "tries", tries, "cause", name}
	if retryIn > 0 {
		values = append(values, "retryIn", retryIn)
	}
	w.logError(logger, due, err, titleOf(op)+" failed", values...)
}

// logSucceeded logs a try that succeeded, took after the operation was first required. endsFailure: a try failed before, perhaps of an
// attach before this detach, and not only by a change of an object.
func (w *Worker) logSucceeded(logger klog.Logger, op attach.Operation, tries int, endsFailure bool, took time.Duration) {
	w.logLine(logger, endsFailure, titleOf(op)+"ed volume", "operation", op.String(), "tries", tries, "duration", took)
}

// logError logs a line of severity error if it is due, and with V(2) always.
func (w *Worker) logError(logger klog.Logger, due bool, err error, message string, keysAndValues ...any) {
	err = errors.New(csiclient.Truncate(err.Error(), csiclient.MaxText))
	switch {
	case logger.V(2).Enabled():
		logger.Error(err, message, keysAndValues...)
	case due:
		w.log.Error(logger, err, message, keysAndValues...)
	}
}

// logLine logs a line at V(2), or at every verbosity if it is important. With V(2) no line is suppressed.
func (w *Worker) logLine(logger klog.Logger, important bool, message string, keysAndValues ...any) {
	if important && !logger.V(2).Enabled() {
		w.log.Info(logger, message, keysAndValues...)
		return
	}
	logger.V(2).Info(message, keysAndValues...)
}

// Each line about a volume is logged by one of these loggers, so that it has the keys that OPERATE.md lists. They
// begin with the logger of the manager, which names the driver: with the logger of a context, a key might be
// there twice.

// VolumeLogger returns the logger for a VolumeAttachment and its volume. While the PersistentVolume is not in the
// cache yet, the volume handle is known from the note that is written before the driver is called.
func (w *Worker) VolumeLogger(va *storagev1.VolumeAttachment) klog.Logger {
	va = w.Overlay.Newest(va)
	return w.Logger.WithValues(attach.LogKeys(va, w.Cluster.VolumeHandle(va))...)
}

// DanglingLogger returns the logger for a dangling publication. It names the VolumeAttachment that the volume was
// published for.
func (w *Worker) DanglingLogger(u volume.Dangling) klog.Logger {
	keys := attach.LogKeys(formerObject(u.FormerOwner), u.Target.VolumeHandle)
	return w.Logger.WithValues(append(keys, "nodeID", u.Target.NodeID)...)
}

// Reasons of the Events on VolumeAttachments, on PersistentVolumes that are attached without a
// VolumeAttachment, and on CSIDrivers. Those of an operation begin with its title.
const (
	failedEvent   = "Failed"
	stuckEvent    = "Stuck"
	foreignWriter = "ForeignWriter"
	detachGivenUp = "DetachGivenUp"
	noAttach      = "AttachRequiredFalse"
)

// Warn records a warning on an object. The recorder drops repetitions and bounds the rate.
func (w *Worker) Warn(object runtime.Object, reason, message string) {
	if recorder := w.Events; recorder != nil {
		recorder.Event(object, corev1.EventTypeWarning, reason, attach.Text(message))
	}
}

// titleOf returns "Attach" or "Detach", with which texts about an operation begin.
func titleOf(op attach.Operation) string {
	if op == attach.Detaching {
		return "Detach"
	}
	return "Attach"
}

// formerObject returns what is known of a deleted VolumeAttachment, for Events and log lines about it.
func formerObject(id volume.Identity) *storagev1.VolumeAttachment {
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: id.Name, UID: id.UID}}
	va.Spec.NodeName, va.Spec.Source.PersistentVolumeName = id.Node, &id.PersistentVolume
	return va
}

// checkWriter reports a change of a VolumeAttachment that another attacher made during this term. Such an
// attacher ignores the lease: a sidecar without leader election, for example.
func (w *Worker) checkWriter(before, va *storagev1.VolumeAttachment) {
	if before == nil || before.UID != va.UID || w.isFromBeforeTerm(va) {
		return
	}
	manager, at := attach.ConflictingWriter(before, va)
	if manager == "" {
		return
	}
	w.Metrics.ForeignWriter()
	w.Warn(va, foreignWriter, fmt.Sprintf("another attacher (%s) wrote status while this hub serves the driver", manager))
	if w.conflictLog.IsDue(manager, at) {
		w.VolumeLogger(va).Info("Another attacher writes VolumeAttachments of the driver, which this hub serves", "manager", manager,
			"wrote", "status", "at", at)
	}
	w.Conflict(status.ForeignWriter{Manager: manager, Time: at, VolumeAttachment: va.Name})
}
