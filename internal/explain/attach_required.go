package explain

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// publishCapability is the capability of a driver whose volumes have to be attached, as the hub reports it.
const publishCapability = "PUBLISH_UNPUBLISH_VOLUME"

// attachRequiredWrong reports whether the CSIDriver forbids an attach that the driver needs. Some drivers can do without
// the attach that they offer: so it counts only if a Pod waits for its volumes for longer than is usual.
func (w *walk) attachRequiredWrong() bool {
	return w.Served != nil && slices.Contains(w.Served.Capabilities, publishCapability) && len(w.waitingPods()) > 0
}

// waitingPods returns the Pods with the volume that have a node and have waited there for their start for longer than
// slow.
func (w *walk) waitingPods() []corev1.Pod {
	users := items(w.Users)
	if w.Pod != nil && !slices.ContainsFunc(users, func(p corev1.Pod) bool { return p.UID == w.Pod.UID }) {
		users = append(slices.Clip(users), *w.Pod)
	}
	return slices.DeleteFunc(slices.Clone(users), func(p corev1.Pod) bool {
		return p.Spec.NodeName == "" || p.Status.Phase != corev1.PodPending || p.DeletionTimestamp != nil || w.Now.Sub(scheduled(&p)) < slow ||
			slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
				return c.State.Waiting == nil || c.State.Waiting.Reason != "ContainerCreating" && c.State.Waiting.Reason != "PodInitializing"
			})
	})
}

// scheduled returns when a Pod got its node, else when it was created.
func scheduled(p *corev1.Pod) time.Time {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return p.CreationTimestamp.Time
}

// requireAttach makes the CSIDriver again with attachRequired: true, since the API server lets nobody change the field.
// The kubelet decides for the life of a Pod whether its volumes are attached, so that the waiting Pods are made again too.
func (w *walk) requireAttach(f *Finding) {
	change := diagnosis.Commands(
		[]string{"kubectl", "get", "csidriver", w.Driver, "-o", "json"},
		[]string{"kubectl", "patch", "--local", "-f", "-", "--type=merge", "-p", `{"spec":{"attachRequired":true}}`, "-o", "json"},
		[]string{"kubectl", "replace", "--force", "-f", "-"})
	if change == nil {
		return
	}
	var lines [][]string
	for _, pod := range w.waitingPods() {
		if metav1.GetControllerOf(&pod) == nil {
			f.Next += " Delete " + ref(Pod, pod.Namespace, pod.Name) + " and create it again: it has no controller that does."
			continue
		}
		lines = append(lines, []string{"kubectl", "-n", pod.Namespace, "delete", "pod", pod.Name})
	}
	f.Commands = append([]string{strings.Join(change, " | ")}, diagnosis.Commands(lines...)...)
}
