package hub

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
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
	// The name that the kubelet gives to a CSI volume.
	name := corev1.UniqueVolumeName("kubernetes.io/csi/" + l.name + "^" + plan.Target.VolumeHandle)
	if node != nil && slices.Contains(node.Status.VolumesInUse, name) {
		return fmt.Errorf("attachRequired is false, but the volume is in use on node %q: it stays attached until it is not", node.Name)
	}
	return nil
}
