package lease

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A replica has to look dead by the clocks of two machines.
func TestRenewalsAreComparedWithTheNewestOfAnotherReplicaThatIsNotInTheFuture(t *testing.T) {
	now := time.Unix(1000, 0)
	announcement := func(holder string, ago time.Duration) *coordinationv1.Lease {
		l := object(Name{"ns", holder}, 1, holder, 15)
		l.Labels = map[string]string{replicaLabel: "true"}
		l.Spec.RenewTime = &metav1.MicroTime{Time: now.Add(-ago)}
		return l
	}
	ofDriver := announcement("attacher", time.Second)
	ofDriver.Labels = nil
	never := announcement("never", 0)
	never.Spec.RenewTime = nil
	for name, c := range map[string]struct {
		leases []*coordinationv1.Lease
		want   time.Duration // before now
	}{
		"the newest of two":                   {[]*coordinationv1.Lease{announcement("a", 80*time.Second), announcement("b", 3*time.Second)}, 3 * time.Second},
		"all old: after an outage, or ahead":  {[]*coordinationv1.Lease{announcement("a", 400*time.Second), announcement("b", 300*time.Second)}, 300 * time.Second},
		"one in the future":                   {[]*coordinationv1.Lease{announcement("a", 80*time.Second), announcement("b", -300*time.Second)}, 0},
		"this replica's own says nothing":     {[]*coordinationv1.Lease{announcement("a", 80*time.Second), announcement("self", 0)}, 80 * time.Second},
		"the lease of a driver says nothing":  {[]*coordinationv1.Lease{announcement("a", 80*time.Second), ofDriver}, 80 * time.Second},
		"a lease without a time says nothing": {[]*coordinationv1.Lease{announcement("a", 80*time.Second), never}, 80 * time.Second},
	} {
		if got := now.Sub(newestRenewal(c.leases, "self", now)); got != c.want {
			t.Errorf("%s: %v ago, want %v", name, got, c.want)
		}
	}
	if age := ageWhenListed(announcement("a", 80*time.Second), now.Add(-3*time.Second)); age != 77*time.Second {
		t.Errorf("the age is %v", age)
	}
	if age := ageWhenListed(announcement("a", -80*time.Second), now) + ageWhenListed(never, now); age != 0 {
		t.Errorf("without a time, or in the future, the age is %v", age)
	}
}
