package registry_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func TestLeaseOfADriverHasTheNameThatCSIAttacherGivesIt(t *testing.T) {
	for driver, want := range map[string]string{
		"ebs.csi.aws.com":        "external-attacher-leader-ebs-csi-aws-com",
		"a-b":                    "external-attacher-leader-a-b",
		"CSI.Example.com":        "external-attacher-leader-csi-example-com", // which csi-attacher cannot have
		strings.Repeat("a", 63):  "external-attacher-leader-" + strings.Repeat("a", 63),
		"not.a.driver's.name...": "external-attacher-leader-not-a-driver-s-name---x",
	} {
		got := registry.LeaseName(driver)
		if got != want {
			t.Errorf("%s: got %s, want %s", driver, got, want)
		}
		if problems := validation.IsDNS1123Subdomain(got); len(problems) > 0 {
			t.Errorf("%s is no name of a Lease: %v", got, problems)
		}
	}
}

func TestLeaseIsWhatWasSaidAndCSIAttachersOtherwise(t *testing.T) {
	config, err := registry.Parse("f.yaml", []byte(header+`defaults: {lease: {namespace: storage}}
drivers:
  - {name: a, endpoint: "unix:///a"}
  - {name: b, endpoint: "unix:///b", lease: {name: mine, namespace: other}}
  - {name: c, endpoint: "unix:///c", lease: {namespace: ""}}
`))
	check(t, err)
	for name, want := range map[string]string{
		"a": "storage/external-attacher-leader-a", "b": "other/mine", "c": "external-attacher-leader-c",
	} {
		if got := config.Drivers()[name].LeaseOf().String(); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

func TestBurstWithoutANumberIsTwoSeconds(t *testing.T) {
	for _, test := range []struct {
		kubeAPI registry.KubeAPI
		want    int
	}{
		{registry.KubeAPI{QPS: 5, Burst: 3}, 3}, {registry.KubeAPI{QPS: 5}, 10}, {registry.KubeAPI{QPS: 0.1}, 1}, {registry.KubeAPI{QPS: 0.6}, 2},
	} {
		if got := test.kubeAPI.BurstOrDefault(); got != test.want {
			t.Errorf("%+v: got %d, want %d", test.kubeAPI, got, test.want)
		}
	}
}
