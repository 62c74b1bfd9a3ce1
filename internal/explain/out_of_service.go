package explain

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// otherNode returns the VolumeAttachment by which a volume is attached to another node, nil without one.
func (v *Volume) otherNode() *storagev1.VolumeAttachment {
	for _, other := range items(v.Others) {
		if other.DeletionTimestamp == nil && other.Status.Attached {
			return &other
		}
	}
	return nil
}

// outOfService names the node to which a volume is attached if that is not ready: its kubelet does not unmount the volume,
// and kube-controller-manager does not detach it before the taint says that the machine is off.
func (w *walk) outOfService(f *Finding) {
	other, node := w.otherNode(), w.OtherNode.Value()
	c := ready(node)
	if other == nil || c == nil || c.Status == corev1.ConditionTrue {
		return
	}
	w.note(*f)
	*f = w.finding(diagnosis.Diagnosis{Verdict: diagnosis.AttachedToNotReadyNode, Object: "Node " + node.Name, Since: c.LastTransitionTime.Time,
		Fact:   fmt.Sprintf("not ready, and the volume is attached there (VolumeAttachment %s)", other.Name),
		Detail: cmp.Or(c.Message, c.Reason)})
	untaint := fmt.Sprintf("When the node is back, remove the taint: kubectl taint nodes %s %s-.", node.Name, corev1.TaintNodeOutOfService)
	if slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService }) {
		f.Next = "Wait: the node has the taint " + corev1.TaintNodeOutOfService + ", so kube-controller-manager deletes its Pods and detaches their volumes. " + untaint
		return
	}
	f.Next = fmt.Sprintf("Make sure that the machine of node %s is off: two nodes that write to the volume destroy its data. Then taint the node: kube-controller-manager deletes its Pods and detaches their volumes. %s", node.Name, untaint)
	f.Commands = diagnosis.Commands([]string{"kubectl", "taint", "nodes", node.Name, corev1.TaintNodeOutOfService + "=nodeshutdown:NoExecute"})
}
