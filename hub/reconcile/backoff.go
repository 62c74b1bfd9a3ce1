package reconcile

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// backoff returns the delay before the next try after a number of failures in a row (at least 1). It starts at
// retry.Initial, doubles with each failure and is at most retry.Max, or a quarter of that after an error that
// usually passes soon. It is up to a fifth shorter at random, so that operations that failed together are not
// tried again together. The first failure because of a changed object has no delay: the object was read again.
// deploy/CONFIGURE.md has a table of the errors; a test compares it with this function.
func backoff(retry registry.Retry, failures int, err error, random func() float64) time.Duration {
	if failures == 1 && errors.Is(err, attach.ErrStale) {
		return 0
	}
	limit := retry.Max
	if passesSoon(err) {
		limit = max(retry.Max/4, retry.Initial)
	}
	delay := limit
	if shift := failures - 1; shift < 32 && retry.Initial<<shift > 0 {
		delay = min(limit, retry.Initial<<shift)
	}
	return delay - time.Duration(random()*float64(delay)/5)
}

// retryIn returns the delay of the next try of an item after a number of failures in a row, of which err is the last. If the item is a
// suspect, it waits for a random part of that again after the driver was away: other volumes of a driver that takes long to come back must
// have a time in which they can be attached. An attach that a full node has refused has no delay: it waits until the node has a place
// (queue.Queue).
func (l *Worker) retryIn(e *queue.Item, op attach.Operation, failures int, err error) time.Duration {
	if op == attach.Attaching && isNodeFull(err) {
		e.Retries.NoPlace++
		return 0
	}
	delay := backoff(l.Settings().Retry, failures-e.Retries.NoPlace, err, jitter)
	if e.Retries.Suspect() {
		e.Retries.AfterReconnect = time.Duration(jitter() * float64(delay))
	}
	return delay
}

// isNodeFull reports whether the error of a publish says that the node has as many volumes as it can have. By the CSI
// spec, that is ResourceExhausted, and publishes fail until a volume is detached from the node.
func isNodeFull(err error) bool {
	call := (*attach.CallError)(nil)
	return errors.As(err, &call) && status.Code(call.Err) == codes.ResourceExhausted
}

// saysNodeFull is isNodeFull for an error in the status of a VolumeAttachment; false for nil.
func saysNodeFull(e *storagev1.VolumeError) bool {
	return e != nil && attach.CauseOfStatus(e).Code == codes.ResourceExhausted.String()
}

// passesSoon reports whether an error usually passes soon: another operation is pending for the volume, the
// driver was away or slow, or the Kubernetes API was not ready. A full node (ResourceExhausted) can stay full. A lost
// connection is an error only of a suspect, which may end the driver's process each time.
func passesSoon(err error) bool {
	soon := []codes.Code{codes.Aborted, codes.Unavailable, codes.DeadlineExceeded, codes.Canceled}
	return attach.NotReady(err) || !IsDisconnected(err) && slices.Contains(soon, status.Code(err))
}

// jitter is the source of randomness of backoff outside tests.
func jitter() float64 { return rand.Float64() }
