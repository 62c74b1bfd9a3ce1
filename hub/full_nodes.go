package hub

import (
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// isNodeFull reports whether the error of a publish says that the node has as many volumes as it can have. By the CSI
// spec, that is ResourceExhausted, and publishes fail until a volume is detached from the node.
func isNodeFull(err error) bool {
	call := (*attach.CallError)(nil)
	return errors.As(err, &call) && grpcstatus.Code(call.Err) == codes.ResourceExhausted
}

// saysNodeFull is isNodeFull for an error in the status of a VolumeAttachment; false for nil.
func saysNodeFull(e *storagev1.VolumeError) bool {
	return e != nil && causeOfStatus(e).Code == codes.ResourceExhausted.String()
}

// delay returns the delay of the next try of an item after a number of failures in a row, of which err is the last.
// An attach that a full node has refused has none: it waits until the node has a place (queue.Queue).
func (l *leader) delay(e *queue.Item, op attach.Operation, failures int, err error) time.Duration {
	if op == attach.Attaching && isNodeFull(err) {
		e.Retries.NoPlace++
		return 0
	}
	return l.retryIn(e, failures-e.Retries.NoPlace, err)
}

// detachedElsewhere reports whether another process has detached the volume of a VolumeAttachment that is gone now:
// an attacher had noted its target, and this process has not worked on it.
func (l *leader) detachedElsewhere(va *storagev1.VolumeAttachment) bool {
	known, _ := l.table.Known(va)
	return !known && va.DeletionTimestamp != nil && attach.NotedTarget(va).NodeID != "" && !l.table.WasReleased(va.UID)
}

// fullNodes returns the full nodes of the driver, the longest line first and at most status.MostFullNodes, and how
// many attaches wait for a place on any of them.
func (m *manager) fullNodes() ([]status.FullNode, int) {
	var shown []status.FullNode
	waiting := 0
	for _, n := range m.queue.FullNodes() {
		waiting += len(n.Line)
		if len(shown) < status.MostFullNodes {
			shown = append(shown, status.FullNode{Node: n.Node, Limit: attach.Allocatable(m.cluster.CSINode(n.Node), m.name),
				Attached: m.attachedOn(n.Node), Since: n.Since, Waiting: len(n.Line), Line: n.Line[:min(len(n.Line), status.MostWaiters)], NextTry: n.NextTry})
		}
	}
	return shown, waiting
}

// attachedOn returns how many VolumeAttachments of the driver are attached to a node.
func (m *manager) attachedOn(node string) int {
	attached := 0
	for _, va := range m.cluster.AttachmentsOnNode(node) {
		if va.Spec.Attacher == m.name && m.overlay.Newest(va).Status.Attached {
			attached++
		}
	}
	return attached
}
