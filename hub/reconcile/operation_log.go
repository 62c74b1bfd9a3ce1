package reconcile

import (
	"errors"
	"time"

	"google.golang.org/grpc/status"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
	"github.com/csi-attach-hub/csi-attach-hub/internal/loglimit"
)

// Limits of the log lines of one driver at the default verbosity, for each message: all volumes of a driver may
// fail at once.
const (
	logBurst = 20
	logEvery = time.Second
)

// operationLog logs how the operations of a driver end. At every verbosity it logs the first failure in a row and
// the success that ends it, but bounded in rate. With V(2) it logs every try.
type operationLog struct{ limiter *loglimit.Limiter }

// failed logs a try of an operation that failed, with the number of failures in a row.
func (o operationLog) failed(logger klog.Logger, op attach.Operation, failures int, retryIn time.Duration, err error) {
	message := "Attach failed, will retry"
	if op == attach.Detaching {
		message = "Detach failed, will retry"
	}
	values := []any{"operation", op.String(), "failures", failures}
	if op == attach.Attaching && isNodeFull(err) {
		message = "Attach failed because the node is full, waiting for a place there"
	} else {
		values = append(values, "retryIn", retryIn)
	}
	if call := (*attach.CallError)(nil); errors.As(err, &call) {
		values = append(values, "code", status.Code(call.Err).String())
	}
	values = append(values, "err", csiclient.Truncate(err.Error(), csiclient.MaxText))
	o.line(logger.WithCallDepth(1), failures == 1, message, values...)
}

// succeeded logs an operation that succeeded, took after it was first asked for, after a number of failures. endsFailure:
// something failed before, if only an attach before this detach.
func (o operationLog) succeeded(logger klog.Logger, op attach.Operation, failures int, endsFailure bool, took time.Duration) {
	message := "Attached volume"
	if op == attach.Detaching {
		message = "Detached volume"
	}
	o.line(logger.WithCallDepth(1), endsFailure, message, "operation", op.String(), "failures", failures, "duration", took)
}

// line logs a line at V(2), or at every verbosity if it is important. With V(2) no line is suppressed.
func (o operationLog) line(logger klog.Logger, important bool, message string, keysAndValues ...any) {
	logger = logger.WithCallDepth(1)
	switch {
	case !important:
		logger.V(2).Info(message, keysAndValues...)
	case logger.V(2).Enabled():
		logger.Info(message, keysAndValues...)
	default:
		o.limiter.Info(logger, message, keysAndValues...)
	}
}

// Each line about a volume is logged by one of these loggers, so that it has the keys that OPERATE.md lists. They
// begin with the logger of the manager, which names the driver: with the logger of a context, a key might be
// there twice.

// VolumeLogger returns the logger for a VolumeAttachment and its volume. While the PersistentVolume is not in the
// cache yet, the volume handle is known from the note that is written before the driver is called.
func (l *Worker) VolumeLogger(va *storagev1.VolumeAttachment) klog.Logger {
	va = l.Overlay.Newest(va)
	return l.Logger.WithValues(attach.LogKeys(va, l.Cluster.VolumeHandle(va))...)
}

// UnownedLogger returns the logger for an unowned publication. It names the VolumeAttachment that the volume was
// published for.
func (l *Worker) UnownedLogger(u volume.Unowned) klog.Logger {
	keys := attach.LogKeys(formerObject(u.FormerOwner), u.Target.VolumeHandle)
	return l.Logger.WithValues(append(keys, "nodeID", u.Target.NodeID)...)
}
