package registry_test

import (
	"strings"
	"testing"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func TestSanitizedNameIsThatOfCSIAttacher(t *testing.T) {
	for name, want := range map[string]string{
		"ebs.csi.aws.com":      "ebs-csi-aws-com",
		"a-b":                  "a-b",
		"s!a@n#i$t(i%z^e&d*":   "s-a-n-i-t-i-z-e-d-X",
		"Upper.9":              "Upper-9",
		"ends-":                "ends-X",
		"größe":                "gr--e",
		"":                     "",
		"invalid\xff\xfebytes": "invalid--bytes",
	} {
		if got := registry.SanitizedName(name); got != want {
			t.Errorf("SanitizedName(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestLeaseIsWhatWasSaidAndCSIAttachersOtherwise(t *testing.T) {
	config, err := registry.Parse("f.yaml", []byte(header+`defaults: {lease: {namespace: storage}}
drivers:
  - {name: a, endpoint: "unix:///a"}
  - {name: b, endpoint: "unix:///b", lease: {name: mine, namespace: other}}
  - {name: c, endpoint: "unix:///c", lease: {namespace: ""}}
  - {name: CSI.Example.com, endpoint: "unix:///d"}
`))
	check(t, err)
	for name, want := range map[string]string{
		"a": "storage/external-attacher-leader-a", "b": "other/mine", "c": "external-attacher-leader-c",
		"CSI.Example.com": "storage/external-attacher-leader-csi-example-com", // which csi-attacher cannot have
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

// What is taken for a driver's name makes a finalizer and a lease that the API server
// takes, the same every time.
func FuzzDriverName(f *testing.F) {
	for _, s := range []string{"ebs.csi.aws.com", "A-b.C", strings.Repeat("a", 63), "a-", "ü", "a..b", "-", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		sanitized := registry.SanitizedName(name)
		if registry.SanitizedName(sanitized) != sanitized {
			t.Errorf("%q became %q, which becomes %q", name, sanitized, registry.SanitizedName(sanitized))
		}
		if err := registry.CheckName(name); err != nil {
			if strings.ContainsFunc(err.Error(), unicode.IsControl) || len(err.Error()) > 1000 {
				t.Errorf("%q", err)
			}
			return
		}
		if wrong := validation.IsQualifiedName("external-attacher/" + sanitized); wrong != nil {
			t.Errorf("finalizer of %q: %v", name, wrong)
		}
		if wrong := validation.IsDNS1123Subdomain(registry.LeaseName(name)); wrong != nil {
			t.Errorf("lease of %q: %v", name, wrong)
		}
	})
}
