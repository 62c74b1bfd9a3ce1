package deploy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The patch of the README adds what NodeLocal DNSCache and OpenShift need, and nothing else.
func TestPatchOfTheREADMEOpensOnlyDNS(t *testing.T) {
	block := regexp.MustCompile("(?s)```yaml\n(# kustomization.yaml, DNS\n.*?)```").FindSubmatch(readFile(t, "README.md"))
	if block == nil {
		t.Fatal("the README has no patch for DNS")
	}
	dir := t.TempDir()
	content := "resources: [" + relative(t, dir, "overlays/proxies") + "]\n" + string(block[1])
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	ports := func(number int) []networkingv1.NetworkPolicyPort {
		port, udp, tcp := intstr.FromInt(number), corev1.ProtocolUDP, corev1.ProtocolTCP
		return []networkingv1.NetworkPolicyPort{{Protocol: &udp, Port: &port}, {Protocol: &tcp, Port: &port}}
	}
	want := as[networkingv1.NetworkPolicy](t, find(t, build(t, "overlays/proxies"), "NetworkPolicy", "csi-attach-hub"))
	want.Spec.Egress = append(want.Spec.Egress, networkingv1.NetworkPolicyEgressRule{
		To:    []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "169.254.20.10/32"}}},
		Ports: ports(53),
	}, networkingv1.NetworkPolicyEgressRule{
		To: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{
			MatchLabels: map[string]string{corev1.LabelMetadataName: "openshift-dns"},
		}}},
		Ports: ports(5353),
	})
	if diff := cmp.Diff(want, as[networkingv1.NetworkPolicy](t, find(t, build(t, dir), "NetworkPolicy", "csi-attach-hub"))); diff != "" {
		t.Errorf("policy (-want +patched):\n%s", diff)
	}
}
