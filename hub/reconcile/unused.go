package reconcile

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// errRequiredAgain means that attachRequired became true during a detach whose only reason was that it is false.
var errRequiredAgain = fmt.Errorf("%w: attachRequired is true again", attach.ErrStale)

// checkUnused returns an error if a volume is in use on its node, or if that cannot be found out. It is called
// before the status is written and before each call of a detach whose only reason is that attachRequired is false: a CSIDriver
// object that was created again with the wrong attachRequired must not take volumes from running Pods.
func (l *Worker) checkUnused(ctx context.Context, va *storagev1.VolumeAttachment, target attach.Target) error {
	node, err := l.Cluster.ReadNode(ctx, va.Spec.NodeName)
	switch {
	case !l.Decider().NoAttach:
		return errRequiredAgain
	case err != nil:
		return fmt.Errorf("attachRequired is false, but the API server did not say whether node %q uses the volume: %w", va.Spec.NodeName, err)
	case node != nil && l.Decider().InUse(node, target.VolumeHandle):
		return fmt.Errorf("attachRequired is false, but the volume is in use on node %q: it stays attached until it is not", node.Name)
	}
	return nil
}

// errInUse means that a volume is not detached because the kubelet uses it.
type errInUse struct{ node string }

func (e errInUse) Error() string {
	return fmt.Sprintf("no VolumeAttachment has the volume there, but it is in use on node %q: it stays attached until it is not", e.node)
}

// round is one round of looking at unowned publications.
type round struct {
	number uint64              // of drift.Nodes
	nodes  map[string][]string // names, by the node ID that the driver has registered
}

func (l *Worker) newRound() round { return round{l.nodes.Round(), l.Cluster.NodesOfDriver(l.Driver)} }

// checkUnowned returns errInUse if an unowned publication is in use, another error if that cannot be found out. Its
// VolumeAttachment may have been removed by force, or lost with a part of etcd, under a running Pod. What counts is the node that
// has the node ID now: the former owner's node may be another machine by now. A node that is gone or not ready does not count:
// nobody keeps its status.volumesInUse up to date. It blocks until the API server has answered.
func (l *Worker) checkUnowned(ctx context.Context, r round, u volume.Unowned) error {
	names := r.nodes[u.Target.NodeID]
	former := u.FormerOwner.Node
	if _, registered := attach.NodeID(l.Cluster.CSINode(former), l.Driver); len(names) == 0 && !registered && former != "" {
		names = []string{former} // its node plugin restarts
	}
	for _, name := range names {
		switch node, err := l.nodes.Get(ctx, name, r.number); {
		case err != nil:
			return fmt.Errorf("the API server did not say whether node %q uses the volume: %w", name, err)
		case node != nil && isReady(node) && l.Decider().InUse(node, u.Target.VolumeHandle):
			return errInUse{name}
		}
	}
	return nil
}

// wasInUse returns errInUse if the node of the former owner was read lately and since the last try, and used the volume.
func (l *Worker) wasInUse(u volume.Unowned) error {
	since := time.Now().Add(-l.Settings().Retry.Max)
	if u.Failed.After(since) {
		since = u.Failed
	}
	node := l.nodes.Last(u.FormerOwner.Node, since)
	id, _ := attach.NodeID(l.Cluster.CSINode(u.FormerOwner.Node), l.Driver)
	if node != nil && isReady(node) && id == u.Target.NodeID && l.Decider().InUse(node, u.Target.VolumeHandle) {
		return errInUse{node.Name}
	}
	return nil
}

// isReady reports whether a node is ready, or has not said yet.
func isReady(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return true
}
