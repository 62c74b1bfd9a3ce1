package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"

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
func (w *Worker) checkUnused(ctx context.Context, va *storagev1.VolumeAttachment, target attach.Target) error {
	node, err := w.Cluster.ReadNode(ctx, va.Spec.NodeName)
	switch {
	case !w.Decider().NoAttach:
		return errRequiredAgain
	case err != nil:
		return fmt.Errorf("attachRequired is false, but the API server did not say whether node %q uses the volume: %w", va.Spec.NodeName, err)
	case node != nil && w.Decider().InUse(node, target.VolumeHandle):
		return fmt.Errorf("attachRequired is false, but the volume is in use on node %q: it stays attached until it is not", node.Name)
	}
	return nil
}

// errInUse means that a volume is not detached because the kubelet uses it.
var errInUse = errors.New("no VolumeAttachment has the volume there, but it is in use")

// round is one round of looking at dangling publications.
type round struct {
	nodes map[string][]string // names, by the node ID that the driver has registered
	read  func(ctx context.Context, name string) (*corev1.Node, error)
}

// newRound returns a round that reads each node at most once.
func (w *Worker) newRound() round {
	number := w.nodes.Round()
	return round{w.Cluster.NodesOfDriver(w.Driver), func(ctx context.Context, name string) (*corev1.Node, error) { return w.nodes.Get(ctx, name, number) }}
}

// checkDanglingUnused returns errInUse if a dangling publication is in use, another error if that cannot be found out. Its
// VolumeAttachment may have been removed by force, or lost with a part of etcd, under a running Pod. What counts is the node that
// has the node ID now: the former owner's node may be another machine by now. A node that is gone or not ready does not count:
// nobody keeps its status.volumesInUse up to date. It blocks until the API server has answered.
func (w *Worker) checkDanglingUnused(ctx context.Context, r round, u volume.Dangling) error {
	names := r.nodes[u.Target.NodeID]
	former := u.FormerOwner.Node
	if _, registered := attach.NodeID(w.Cluster.CSINode(former), w.Driver); len(names) == 0 && !registered && former != "" {
		names = []string{former} // its node plugin restarts
	}
	for _, name := range names {
		switch node, err := r.read(ctx, name); {
		case err != nil:
			return fmt.Errorf("the API server did not say whether node %q uses the volume: %w", name, err)
		case node != nil && isReady(node) && w.Decider().InUse(node, u.Target.VolumeHandle):
			return fmt.Errorf("%w on node %q: it stays attached until it is not", errInUse, name)
		}
	}
	return nil
}

// isReady reports whether a node is ready, or has not said yet.
func isReady(node *corev1.Node) bool {
	return !slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
	})
}
