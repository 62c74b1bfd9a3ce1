package lease

import (
	"strings"
	"testing"
	"time"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/fake"
)

func TestOptionsAreChecked(t *testing.T) {
	good := Options{Kube: fake.NewClientset(), Identity: "me", Namespace: "ns", Duration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 5 * time.Second}
	if _, err := New(good); err != nil {
		t.Errorf("csi-attacher's defaults: %v", err)
	}
	for want, spoil := range map[string]func(*Options){
		"no namespace":                     func(o *Options) { o.Namespace = "" },
		"lease-duration is 1.5s":           func(o *Options) { o.Duration = 1500 * time.Millisecond },
		"lease-duration is 0s":             func(o *Options) { o.Duration = 0 },
		"below the lease duration":         func(o *Options) { o.RenewDeadline = 15 * time.Second },
		"which makes 9.6s":                 func(o *Options) { o.RetryPeriod, o.RenewDeadline = 8*time.Second, 9*time.Second },
		"retry-period is 0s":               func(o *Options) { o.RetryPeriod = 0 },
		"replica in\nlease-duration is 0s": func(o *Options) { o.Namespace, o.Duration = "", 0 },
		"retry-period is -1s: it must be":  func(o *Options) { o.RetryPeriod = -time.Second },
	} {
		o := good
		spoil(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	good.Namespace, good.Alone = "", true
	if _, err := New(good); err != nil {
		t.Errorf("alone it announces nothing: %v", err)
	}
}

func TestNameOfAReplicaIsOneOfAnObject(t *testing.T) {
	for _, identity := range []string{NewIdentity(), "Host_X", "host.", "ends-", "_", strings.Repeat("x", 300) + "_abc"} {
		name := replicaName(identity)
		if wrong := utilvalidation.IsDNS1123Subdomain(name); len(wrong) > 0 {
			t.Errorf("%s: %v", name, wrong)
		}
	}
	if one, other := NewIdentity(), NewIdentity(); one == other {
		t.Error("two identities are the same")
	}
}
