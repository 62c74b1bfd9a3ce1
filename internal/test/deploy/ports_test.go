package deploy_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// From Prometheus to the hub four objects name a port: one that does not exist is no error
// anywhere, and nothing is seen.
func TestPrometheusFindsThePortThatTheHubServes(t *testing.T) {
	objects := objectsOf(t, withProxies)
	container := as[appsv1.Deployment](t, find(t, objects, "Deployment", "csi-attach-hub")).Spec.Template.Spec.Containers[0]
	port := container.Ports[0]
	if port.Name != "http" || port.ContainerPort != 8080 || len(container.Ports) != 1 {
		t.Errorf("the ports are %v, want 8080, the default of --http-endpoint, by the name http, by which csi-attach-hub status finds it", container.Ports)
	}
	served := intstr.FromString(port.Name)
	service := as[corev1.Service](t, find(t, objects, "Service", "csi-attach-hub")).Spec.Ports[0]
	if service.TargetPort != served {
		t.Errorf("the Service leads to port %s, the hub serves %s", service.TargetPort.String(), served.String())
	}
	policy := as[networkingv1.NetworkPolicy](t, find(t, objects, "NetworkPolicy", "csi-attach-hub-metrics"))
	if port := policy.Spec.Ingress[0].Ports[0].Port; *port != served {
		t.Errorf("the network policy opens port %s, the hub serves %s", port.String(), served.String())
	}
	endpoints, _, _ := unstructured.NestedSlice(find(t, objects, "ServiceMonitor", "csi-attach-hub").Object, "spec", "endpoints")
	if endpoint := endpoints[0].(map[string]any); endpoint["port"] != service.Name {
		t.Errorf("scraped is %v, the Service has %s", endpoint["port"], service.Name)
	}
	for name, probe := range map[string]*corev1.Probe{"startup": container.StartupProbe, "liveness": container.LivenessProbe, "readiness": container.ReadinessProbe} {
		if get := probe.HTTPGet; get.Port != served || get.Scheme != "" {
			t.Errorf("the %s probe asks port %s by %s", name, get.Port.String(), get.Scheme)
		}
	}
}
