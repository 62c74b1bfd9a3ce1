package deploy_test

import (
	"os/exec"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// Its files are not here, and that is all that it has to complain of.
func TestProxyTakesTheArgumentsOfItsContainer(t *testing.T) {
	binary, err := testbed.SharedBinary(t.Context(), testbed.BuildOptions{Package: "./cmd/csi-attach-hub", Race: true})
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), binary, proxyContainer(t).Args...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "there is no file /hub-ca/ca.crt") {
		t.Errorf("it ended with %v and said %s", err, out)
	}
}

// proxyContainer returns the container of the proxy beside a driver.
func proxyContainer(t *testing.T) corev1.Container {
	t.Helper()
	pod := as[appsv1.Deployment](t, find(t, build(t, "overlays/driver"), "Deployment", "driver-controller")).Spec.Template.Spec
	for _, c := range pod.Containers {
		if c.Name == "attach-hub-proxy" {
			return c
		}
	}
	t.Fatal("there is no proxy")
	return corev1.Container{}
}

// The readiness of the Pod is that of its driver. A restart of the proxy would not help it.
func TestServiceLeadsToProxiesWhoseDriverIsReady(t *testing.T) {
	c := proxyContainer(t)
	_, health, _ := strings.Cut(argument(t, c.Args, "--health-listen"), ":")
	if get := c.ReadinessProbe.HTTPGet; get == nil || get.Path != "/readyz" || get.Port.String() != portNamed(t, c, health) || get.Scheme == corev1.URISchemeHTTPS {
		t.Errorf("the readiness probe is %+v", c.ReadinessProbe)
	}
	_, listen, _ := strings.Cut(argument(t, c.Args, "--listen"), ":")
	if probe := c.LivenessProbe.TCPSocket; probe == nil || probe.Port.String() != portNamed(t, c, listen) {
		t.Errorf("the liveness probe is %+v", c.LivenessProbe)
	}
	service := as[corev1.Service](t, find(t, build(t, "overlays/driver"), "Service", "attach-hub-proxy"))
	if service.Spec.PublishNotReadyAddresses || service.Spec.Ports[0].TargetPort.String() != portNamed(t, c, listen) {
		t.Errorf("the Service is %+v", service.Spec)
	}
}

// A rule without a peer admits everybody. The kubelet needs none: policies admit the node.
func TestOnlyTheHubReachesTheProxyAndNobodyItsHealthPort(t *testing.T) {
	policy := as[networkingv1.NetworkPolicy](t, find(t, build(t, "overlays/driver"), "NetworkPolicy", "attach-hub-proxy"))
	admitted := func(port int32, everybody bool) bool {
		for _, rule := range policy.Spec.Ingress {
			for _, p := range rule.Ports {
				last := p.Port.IntVal
				if p.EndPort != nil {
					last = *p.EndPort
				}
				if *p.Protocol == corev1.ProtocolTCP && p.Port.IntVal <= port && port <= last && everybody == (len(rule.From) == 0) {
					return true
				}
			}
		}
		return false
	}
	for port := int32(1); port <= 65535; port++ {
		if hub := admitted(port, false); hub != (port == 9443) {
			t.Errorf("port %d: the hub is admitted: %t", port, hub)
		}
		if everybody := admitted(port, true); everybody != (port != 9443 && port != 9809) {
			t.Errorf("port %d: everybody is admitted: %t", port, everybody)
		}
	}
}
