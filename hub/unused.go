package hub

import (
	"context"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// checkUnused returns an error if a volume is in use on its node, or if that cannot be found out. It is called
// before a detach whose only reason is that attachRequired is false: a CSIDriver object that was created again
// with the wrong attachRequired must not take volumes from running Pods.
func (l *leader) checkUnused(ctx context.Context, va *storagev1.VolumeAttachment, plan attach.Plan) error {
	node, err := l.cluster.ReadNode(ctx, va.Spec.NodeName)
	if err != nil {
		return fmt.Errorf("attachRequired is false, and whether the volume is in use cannot be told: %w", err)
	}
	if node != nil && l.decider().InUse(node, plan.Target.VolumeHandle) {
		return fmt.Errorf("attachRequired is false, but the volume is in use on node %q: it stays attached until it is not", node.Name)
	}
	return nil
}

// maybeInUse returns why a volume may be in use on one of some nodes, for people; "" if it surely is not. The kubelet uses
// a volume for which there is no VolumeAttachment if that was removed by force, or lost with a part of etcd. A Node that
// is gone proves nothing: its Pods may run on. It blocks until the API server has answered.
func (l *leader) maybeInUse(ctx context.Context, nodes []string, handle string) string {
	for _, name := range nodes {
		node, err := l.cluster.ReadNode(ctx, name)
		switch {
		case err != nil:
			return fmt.Sprintf("whether it is in use on node %s is not known: %v", name, err)
		case node == nil:
			return fmt.Sprintf("whether it is in use on node %s is not known: the Node object is gone", name)
		case l.decider().InUse(node, handle):
			return fmt.Sprintf("it is in use on node %s", name)
		}
	}
	return ""
}
