package reconcile

import (
	"context"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

// wanted returns the operation that a VolumeAttachment requires in its newest known state, Idle if it is gone,
// and the lane of the operation.
func (l *Worker) wanted(name string) (attach.Operation, queue.Lane) {
	va := l.Overlay.Attachment(name)
	if va == nil {
		return attach.Idle, queue.DetachLane
	}
	return l.Table.Required(l.Decider(), va)
}

// isUnchanged reports whether a VolumeAttachment is as it was last decided on or written.
func (l *Worker) isUnchanged(name string) bool {
	va := l.Overlay.Attachment(name)
	return va != nil && l.Table.IsUnchanged(va)
}

// sleep blocks for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
