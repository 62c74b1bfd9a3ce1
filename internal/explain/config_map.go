package explain

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/hubclient"
)

// ConfigMap names the ConfigMap from which the hub reads drivers.yaml.
type ConfigMap struct{ Namespace, Name string }

// arg names the ConfigMap for `csi-attach-hub set`.
func (c ConfigMap) arg() string { return "configmap/" + c.Namespace + "/" + c.Name }

// configMap returns the ConfigMap that a replica of the hub mounts as its drivers.yaml, nil if that is not known.
func (g *gatherer) configMap(ctx context.Context) *ConfigMap {
	for _, pod := range g.hubPods(ctx) {
		for _, c := range pod.Spec.Containers {
			if name := mountedConfigMap(&pod.Spec, c); name != "" {
				return &ConfigMap{pod.Namespace, name}
			}
		}
	}
	return nil
}

// hubPods returns the Pods of the hub that were asked.
func (g *gatherer) hubPods(ctx context.Context) []corev1.Pod {
	return items(selected(list(ctx, g, "Pods of the hub", metav1.ListOptions{LabelSelector: hubclient.PodLabels}, g.Kube.CoreV1().Pods(g.Namespace).List,
		func(l *corev1.PodList) []corev1.Pod { return l.Items }), g.isReplica))
}

// isReplica reports whether a Pod is one of the replicas that were asked. Another hub has another drivers.yaml.
func (g *gatherer) isReplica(pod *corev1.Pod) bool {
	return slices.ContainsFunc(g.facts.Hub.View.Replicas, func(r hubclient.Replica) bool {
		return r.Replica == "Pod "+pod.Namespace+"/"+pod.Name || strings.HasPrefix(r.Overview.Identity, pod.Name+"_")
	})
}

// mountedConfigMap returns the name of the ConfigMap with the file that a container of the hub has as --config, "" if
// it comes from elsewhere.
func mountedConfigMap(pod *corev1.PodSpec, c corev1.Container) string {
	if v := mountedVolume(pod, c, flagValue(c, "config")); v != nil && v.ConfigMap != nil {
		return v.ConfigMap.Name
	}
	return ""
}
