package deploy_test

import (
	"slices"
	"strings"
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
	objects := build(t, "overlays/proxies")
	container := as[appsv1.Deployment](t, find(t, objects, "Deployment", "csi-attach-hub")).Spec.Template.Spec.Containers[0]
	_, served, _ := strings.Cut(argument(t, container.Args, "--http-endpoint"), ":")
	guarded := intstr.FromString(portNamed(t, container, served))
	if !slices.Contains(container.Args, "--http-authorization") {
		t.Error("everybody may look at it")
	}
	service := as[corev1.Service](t, find(t, objects, "Service", "csi-attach-hub")).Spec.Ports[0]
	if service.TargetPort != guarded {
		t.Errorf("the Service leads to port %s, the hub serves %s", service.TargetPort.String(), guarded.String())
	}
	policy := as[networkingv1.NetworkPolicy](t, find(t, objects, "NetworkPolicy", "csi-attach-hub-metrics"))
	if port := policy.Spec.Ingress[0].Ports[0].Port; *port != guarded {
		t.Errorf("the network policy opens port %s, the hub serves %s", port.String(), guarded.String())
	}
	endpoints, _, _ := unstructured.NestedSlice(find(t, objects, "ServiceMonitor", "csi-attach-hub").Object, "spec", "endpoints")
	endpoint := endpoints[0].(map[string]any)
	if endpoint["port"] != service.Name || endpoint["scheme"] != "https" {
		t.Errorf("scraped is %v by %v, the Service has %s", endpoint["port"], endpoint["scheme"], service.Name)
	}
	secret, _, _ := unstructured.NestedString(endpoint, "authorization", "credentials", "name")
	token := find(t, objects, "Secret", secret)
	if account := token.GetAnnotations()[corev1.ServiceAccountNameKey]; account != "csi-attach-hub-metrics" {
		t.Errorf("the token is that of %q", account)
	}
	for name, probe := range map[string]*corev1.Probe{"startup": container.StartupProbe, "liveness": container.LivenessProbe, "readiness": container.ReadinessProbe} {
		if get := probe.HTTPGet; get.Port != guarded || get.Scheme != corev1.URISchemeHTTPS {
			t.Errorf("the %s probe asks port %s by %s", name, get.Port.String(), get.Scheme)
		}
	}
}

// The commands status and explain, and kubectl port-forward, come over loopback.
func TestPortForPeopleIsReachedByForwardingOnly(t *testing.T) {
	container := as[appsv1.Deployment](t, find(t, build(t, install), "Deployment", "csi-attach-hub")).Spec.Template.Spec.Containers[0]
	address, ok := strings.CutPrefix(argument(t, container.Args, "--health-addr"), "127.0.0.1:")
	if !ok {
		t.Error("--health-addr is not on loopback")
	}
	if name := portNamed(t, container, address); name != "http" {
		t.Errorf("the port is named %q: csi-attach-hub status looks for http", name)
	}
}

// portNamed returns the name of a port of a container.
func portNamed(t *testing.T, container corev1.Container, number string) string {
	t.Helper()
	for _, p := range container.Ports {
		if port := intstr.FromInt32(p.ContainerPort); port.String() == number {
			return p.Name
		}
	}
	t.Fatalf("the container names no port %s", number)
	return ""
}
