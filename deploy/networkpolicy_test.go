package deploy_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func policyPorts(protocols []corev1.Protocol, numbers ...int) []networkingv1.NetworkPolicyPort {
	var ports []networkingv1.NetworkPolicyPort
	for _, number := range numbers {
		for _, protocol := range protocols {
			port := intstr.FromInt(number)
			ports = append(ports, networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: &port})
		}
	}
	return ports
}

func inNamespace(name string) []networkingv1.NetworkPolicyPeer {
	return []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: name}}}}
}

// The components add the rule that their DNS servers need, and nothing else.
func TestTheHubReachesOnlyTheAPIServerAndDNS(t *testing.T) {
	tcp, both := []corev1.Protocol{corev1.ProtocolTCP}, []corev1.Protocol{corev1.ProtocolUDP, corev1.ProtocolTCP}
	rule := func(ports []networkingv1.NetworkPolicyPort, to ...networkingv1.NetworkPolicyPeer) networkingv1.NetworkPolicyEgressRule {
		return networkingv1.NetworkPolicyEgressRule{Ports: ports, To: to}
	}
	base := []networkingv1.NetworkPolicyEgressRule{
		rule(policyPorts(tcp, 443, 6443, 8443, 16443)), // ports of API servers
		rule(policyPorts(both, 53), inNamespace("kube-system")...),
	}
	nodeLocal := rule(policyPorts(both, 53), networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "169.254.20.10/32"}})
	openshift := rule(policyPorts(both, 5353), inNamespace("openshift-dns")...)
	for folder, want := range map[string][]networkingv1.NetworkPolicyEgressRule{
		install:            base,
		"overlays/proxies": base,
		withNodeLocalDNS:   append(base[:2:2], nodeLocal),
		withOpenShift:      append(base[:2:2], openshift),
	} {
		policy := as[networkingv1.NetworkPolicy](t, find(t, build(t, folder), "NetworkPolicy", "csi-attach-hub"))
		if diff := cmp.Diff(want, policy.Spec.Egress); diff != "" {
			t.Errorf("%s: egress (-want +got):\n%s", folder, diff)
		}
	}
}

func TestPrometheusOfOpenShiftReachesTheMetrics(t *testing.T) {
	policy := as[networkingv1.NetworkPolicy](t, find(t, build(t, withOpenShift), "NetworkPolicy", "csi-attach-hub-metrics"))
	want := inNamespace("openshift-user-workload-monitoring")
	if diff := cmp.Diff(want, policy.Spec.Ingress[0].From); diff != "" || len(policy.Spec.Ingress) != 1 {
		t.Errorf("ingress (-want +got):\n%s", diff)
	}
}
