package registry_test

import (
	"testing"
	"time"

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

func TestDefaultsAreThoseOfTheFormat(t *testing.T) {
	want := registry.Settings{
		Mode:    registry.ModeActive,
		Timeout: 2 * time.Minute,
		Workers: 20,
		Retry:   registry.Retry{Initial: 500 * time.Millisecond, Max: time.Minute},

		ParallelMultiNode: true,

		StuckAfter: 15 * time.Minute,
		Drift:      registry.Drift{Interval: time.Minute, PageSize: 500, Action: registry.DriftReattach, Unexpected: registry.UnexpectedReport},
		Probe:      registry.Probe{Interval: 30 * time.Second},
	}
	if got := registry.DefaultSettings(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
