package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// NodePlugin is the DaemonSet that registers a driver on nodes.
type NodePlugin struct {
	*Workload
	// Pods are those of the DaemonSet on the node of the volume.
	Pods Object[[]corev1.Pod]
}

// registrationPath is the flag by which node-driver-registrar tells the kubelet where the driver's socket is.
const registrationPath = "kubelet-registration-path"

// nodePlugin returns the DaemonSet that registers the driver of a volume, nil if none or more than one is known.
func (g *gatherer) nodePlugin(ctx context.Context, v *Volume) *NodePlugin {
	var found []*Workload
	all := g.workloads(ctx, v)
	for i := range all {
		if w := &all[i]; w.Kind == "DaemonSet" && w.registers(v.Driver) {
			found = append(found, w)
		}
	}
	if len(found) != 1 {
		return nil
	}
	p := &NodePlugin{Workload: found[0]}
	p.Pods = selected(list(ctx, g, "Pods of "+p.Namespace+" on "+v.NodeName, metav1.ListOptions{FieldSelector: "spec.nodeName=" + v.NodeName}, g.Kube.CoreV1().Pods(p.Namespace).List,
		func(l *corev1.PodList) []corev1.Pod { return l.Items }),
		func(pod *corev1.Pod) bool {
			owner := metav1.GetControllerOf(pod)
			return owner != nil && owner.UID == p.UID
		})
	return p
}

// registers reports whether its containers register a driver: one is node-driver-registrar, and the path of the driver's
// socket, an argument or a variable has the driver's name.
func (w *Workload) registers(driver string) bool {
	registrar, named := false, false
	for _, c := range w.Spec.Template.Spec.Containers {
		for _, word := range slices.Concat(c.Command, c.Args) {
			registrar = registrar || strings.Contains(word, registrationPath)
			_, value, _ := strings.Cut(word, "=")
			named = named || word == driver || value == driver || slices.Contains(strings.Split(word, "/"), driver)
		}
		named = named || slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
			return e.Value == driver || slices.Contains(strings.Split(e.Value, "/"), driver)
		})
	}
	return registrar && named
}

// register cures a node on which the driver is not registered: node-driver-registrar registers it when its Pod starts.
func (w *walk) register(f *Finding) {
	p := w.Plugin
	if p == nil || p.Pods.Value() == nil {
		return
	}
	pods := items(p.Pods)
	if len(pods) == 0 {
		f.Next = fmt.Sprintf("Let %s, which registers the driver, run on node %s: it has no Pod there%s.", p.ref(), w.NodeName, prefixed(": ", w.notPlaced(p.Workload)))
		return
	}
	pod := &pods[0]
	f.Next = fmt.Sprintf("Delete %s of %s: the driver registers again when the new Pod starts. If it does not, look at the log of the node-driver-registrar there.", ref(Pod, pod.Namespace, pod.Name), p.ref())
	if why := notReady(pod); why != "" {
		f.Next = fmt.Sprintf("%s is not ready: %s. %s", ref(Pod, pod.Namespace, pod.Name), why, f.Next)
	}
	f.Commands = diagnosis.Commands([]string{"kubectl", "-n", pod.Namespace, "delete", "pod", pod.Name})
}

// notReady says why a Pod is not ready, "" if it is or does not say.
func notReady(pod *corev1.Pod) string {
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if waiting := c.State.Waiting; waiting != nil {
			return "container " + c.Name + " waits, " + cmp.Or(waiting.Reason, "for an unknown reason")
		}
	}
	return ""
}

// notPlaced says why a DaemonSet has no Pod on the node, as far as its template and the node show it.
func (w *walk) notPlaced(d *Workload) string {
	node := w.Node.Value()
	if node == nil {
		return ""
	}
	for key, value := range d.Spec.Template.Spec.NodeSelector {
		if node.Labels[key] != value {
			return fmt.Sprintf("its nodeSelector wants the label %s=%s", key, value)
		}
	}
	for _, taint := range node.Spec.Taints {
		if taint.Effect == corev1.TaintEffectPreferNoSchedule || slices.ContainsFunc(d.Spec.Template.Spec.Tolerations, func(t corev1.Toleration) bool { return tolerates(t, taint) }) {
			continue
		}
		if !strings.HasPrefix(taint.Key, "node.kubernetes.io/") { // the DaemonSet controller tolerates these
			return "it does not tolerate the taint " + taint.ToString()
		}
	}
	return ""
}

// tolerates reports whether a toleration is for a taint. Comparisons of numbers count as tolerated.
func tolerates(t corev1.Toleration, taint corev1.Taint) bool {
	return (t.Key == "" || t.Key == taint.Key) && (t.Effect == "" || t.Effect == taint.Effect) && (t.Operator != "" && t.Operator != corev1.TolerationOpEqual || t.Value == taint.Value)
}
