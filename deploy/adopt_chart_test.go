package deploy_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"
)

// The chart of the hub lets it reach all proxies, as the folder hub does, by the values that adopt prints.
func TestValuesOfTheChartOpenTheWayToProxiesAsTheFolderHubDoes(t *testing.T) {
	block := regexp.MustCompile(`(?m)^  proxies:\n(?:    .*\n)+`)
	adoptEach(t, func(t *testing.T, p adoptProgram) {
		text, _ := p.run("--node-cidr=10.0.0.0/16", "--node-cidr=fd00::/48")
		values := strings.ReplaceAll("\n"+string(block.Find(text)), "\n  ", "\n")
		got := waysOf(as[networkingv1.NetworkPolicy](t, find(t, release{}.render(t, parseValues(t, values)), "NetworkPolicy", "csi-attach-hub-drivers")))
		dir := filepath.Join(t.TempDir(), "out")
		p.run("--node-cidr=10.0.0.0/16", "--node-cidr=fd00::/48", "-o", "helm-plugin="+dir)
		policies := 0
		for document := range bytes.SplitSeq(readFile(t, filepath.Join(dir, "hub/networkpolicy.yaml")), []byte("\n---\n")) {
			policies++
			var policy networkingv1.NetworkPolicy
			if err := yaml.UnmarshalStrict(document, &policy); err != nil {
				t.Fatal(err)
			}
			for _, way := range waysOf(&policy) {
				if !slices.Contains(got, way) {
					t.Errorf("the values do not open %s:\n%s\nopen: %q", way, values, got)
				}
			}
		}
		if policies == 0 || !strings.Contains(values, "enabled: true") {
			t.Errorf("%d policies, values:\n%s", policies, values)
		}
	})
}

// waysOf returns the ports and the addresses that a policy opens, "Pods" for those that it selects.
func waysOf(policy *networkingv1.NetworkPolicy) (ways []string) {
	for _, rule := range policy.Spec.Egress {
		for _, to := range rule.To {
			where := "Pods"
			if to.IPBlock != nil {
				where = to.IPBlock.CIDR
			}
			for _, port := range rule.Ports {
				ways = append(ways, fmt.Sprintf("%s %s of %s", *port.Protocol, port.Port, where))
			}
		}
	}
	return ways
}
