package deploy_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
)

// createPod makes a Pod of a workload as it is in the cluster, and returns the Pod as the API server has it, with all
// defaults.
func (a applier) createPod(client kubernetes.Interface, workload *unstructured.Unstructured) (*corev1.Pod, error) {
	kind, namespace := workload.GroupVersionKind(), workload.GetNamespace()
	mapping, err := a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	found, err := a.dynamic.Resource(mapping.Resource).Namespace(namespace).Get(a.ctx, workload.GetName(), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	content, _, err := unstructured.NestedMap(found.Object, "spec", "template")
	if err != nil {
		return nil, err
	}
	var template corev1.PodTemplateSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &template); err != nil {
		return nil, err
	}
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.GenerateName = workload.GetName() + "-"
	for {
		created, err := client.CoreV1().Pods(namespace).Create(a.ctx, pod, metav1.CreateOptions{})
		switch {
		case err == nil:
			return created, nil
		case a.ctx.Err() != nil || !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "PriorityClass"):
			return nil, fmt.Errorf("create a Pod of %s %s: %w", kind.Kind, workload.GetName(), err)
		}
		time.Sleep(20 * time.Millisecond) // the admission learns of a new PriorityClass a moment after it is made
	}
}

func deletePod(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) error {
	err := client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *metav1.NewDeleteOptions(0))
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// serviceAddress returns the address that an endpoint tcp://NAME.NAMESPACE.svc:PORT leads to: that of the Pod which the
// Service selects. It is an error if it selects another number of Pods than one, another Pod, or does not keep to one
// of several replicas.
func serviceAddress(ctx context.Context, client kubernetes.Interface, endpoint string, pod *runningPod) (string, error) {
	host, port, err := net.SplitHostPort(strings.TrimPrefix(endpoint, "tcp://"))
	if err != nil {
		return "", fmt.Errorf("endpoint %s: %w", endpoint, err)
	}
	parts := strings.Split(host, ".")
	if len(parts) != 3 || parts[2] != "svc" {
		return "", fmt.Errorf("endpoint %s is not of a Service", endpoint)
	}
	service, err := client.CoreV1().Services(parts[1]).Get(ctx, parts[0], metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if len(service.Spec.Ports) != 1 || fmt.Sprint(service.Spec.Ports[0].Port) != port {
		return "", fmt.Errorf("endpoint %s: the Service has the ports %v", endpoint, service.Spec.Ports)
	}
	if service.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return "", fmt.Errorf("endpoint %s: the Service spreads connections over the replicas of the driver", endpoint)
	}
	pods, err := client.CoreV1().Pods(parts[1]).List(ctx, metav1.ListOptions{LabelSelector: labels.Set(service.Spec.Selector).String()})
	if err != nil {
		return "", err
	}
	if len(pods.Items) != 1 || pods.Items[0].Name != pod.pod.Name {
		var names []string
		for _, p := range pods.Items {
			names = append(names, p.Name)
		}
		return "", fmt.Errorf("endpoint %s: the Service selects the Pods %v, want %s", endpoint, names, pod.pod.Name)
	}
	return net.JoinHostPort(pod.ip, service.Spec.Ports[0].TargetPort.String()), nil
}
