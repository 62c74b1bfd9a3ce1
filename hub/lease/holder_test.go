package lease

import (
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"
)

func TestAHolderThatDoesNotRenewIsNotTakenForAHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(Options{Kube: fake.NewClientset(), Identity: "hub-0", Namespace: "hub", Duration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 5 * time.Second})
		must(t, err)
		n, watched := Name{"kube-system", "l"}, Name{"kube-system", "l"}
		written := func(version string) *coordinationv1.Lease {
			return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: n.Namespace, Name: n.Name, ResourceVersion: version},
				Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("sidecar"), LeaseDurationSeconds: ptr.To[int32](15)}}
		}
		expect := func(when string, expired, renews bool) {
			t.Helper()
			if h, ok := l.Holder(n); !ok || h.Expired != expired || h.Renews != renews {
				t.Errorf("%s: holder %+v, want expired %t, renews %t", when, h, expired, renews)
			}
		}
		// What was listed may be dead for long, or renewed in a second.
		l.observations.list(watched, []*coordinationv1.Lease{written("1")}, "1")
		expect("listed", false, false)
		l.observations.watchUp(watched)
		time.Sleep(14 * time.Second)
		expect("not seen for long enough", false, false)
		time.Sleep(time.Second)
		expect("never renewed", true, false)
		l.observations.saw(written("2"))
		expect("renewed", false, true)
		// Without a watch, renewals cannot be seen.
		l.observations.watchDown(watched, nil)
		time.Sleep(time.Hour)
		expect("not watched", false, false)
		l.observations.watchUp(watched)
		expect("watched again", false, false)
		time.Sleep(15 * time.Second)
		expect("dead", true, false)
	})
}
