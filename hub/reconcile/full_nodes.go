package reconcile

import (
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

// isNodeFull reports whether the error of a publish says that the node has as many volumes as it can have. By the CSI
// spec, that is ResourceExhausted, and publishes fail until a volume is detached from the node.
func isNodeFull(err error) bool {
	call := (*attach.CallError)(nil)
	return errors.As(err, &call) && grpcstatus.Code(call.Err) == codes.ResourceExhausted
}

// saysNodeFull is isNodeFull for an error in the status of a VolumeAttachment; false for nil.
func saysNodeFull(e *storagev1.VolumeError) bool {
	return e != nil && attach.CauseOfStatus(e).Code == codes.ResourceExhausted.String()
}

// delay returns the delay of the next try of an item after a number of failures in a row, of which err is the last.
// An attach that a full node has refused has none: it waits until the node has a place (queue.Queue).
func (l *Worker) delay(e *queue.Item, op attach.Operation, failures int, err error) time.Duration {
	if op == attach.Attaching && isNodeFull(err) {
		e.Retries.NoPlace++
		return 0
	}
	return l.retryIn(e, failures-e.Retries.NoPlace, err)
}
