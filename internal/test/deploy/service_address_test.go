package deploy_test

import (
	"context"
	"fmt"
	"net"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
)

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
