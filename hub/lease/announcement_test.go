package lease

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestAReplicaAnnouncesWhatItIsAbleToServe(t *testing.T) {
	w := newWorld(t)
	r := w.replica(lasting, func(o *Options) { o.Labels = map[string]string{"team": "storage"} })
	r.hold("b", "a")
	r.term("a")
	r.term("b")
	read := func(want string) *coordinationv1.Lease {
		for {
			l, err := w.kube.CoordinationV1().Leases(w.namespace).Get(w.ctx, replicaName(r.options.Identity), metav1.GetOptions{})
			if err == nil && l.Annotations[driversAnnotation] == want {
				return l
			}
			if w.ctx.Err() != nil {
				t.Fatalf("announced: %v, %v; want %s", l, err, want)
			}
			pause(w.ctx, 10*time.Millisecond)
		}
	}
	l := read("a,b")
	if l.Labels[replicaLabel] != "true" || l.Labels["team"] != "storage" || ptr.Deref(l.Spec.HolderIdentity, "") != r.options.Identity {
		t.Errorf("announced: %+v", l)
	}
	if l := w.get("a"); l.Labels["team"] != "storage" {
		t.Errorf("labels of the lease: %v", l.Labels)
	}
	// From when it is to end a driver is not announced any more, though its work goes on.
	drain := make(chan struct{})
	r.drain = drain
	r.stopHold["a"]()
	read("b")
	if h := w.holder("a"); h != r.options.Identity {
		t.Errorf("held by %q while the work drains", h)
	}
	close(drain)
	// Deleted by somebody, it is made anew.
	must(t, w.kube.CoordinationV1().Leases(w.namespace).Delete(w.ctx, l.Name, metav1.DeleteOptions{}))
	read("b")
	r.stop()
	if _, err := w.kube.CoordinationV1().Leases(w.namespace).Get(w.ctx, l.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after the end the announcement is there: %v", err)
	}
}

func TestLiveMembersAreThoseThatAnnouncedThemselvesLately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		seen := func(holder string, ago time.Duration) observation {
			return observation{known: true, present: true, since: now.Add(-ago), lease: *object(Name{"ns", holder}, 1, holder, 10)}
		}
		members, next := liveMembers(Member{Identity: "m", Self: true}, map[Name]observation{
			{"ns", "1"}: seen("z", 4*time.Second),
			{"ns", "2"}: seen("a", time.Second),
			{"ns", "3"}: seen("dead", 10*time.Second),
			{"ns", "4"}: seen("", 0),
			{"ns", "5"}: seen("m", 0), // this replica's own
		}, time.Second, now)
		var ids []string
		for _, m := range members {
			ids = append(ids, m.Identity)
		}
		if !slices.Equal(ids, []string{"a", "m", "z"}) {
			t.Errorf("the live members are %v", ids)
		}
		if next.Sub(now) != 6*time.Second {
			t.Errorf("the next could die in %v", next.Sub(now))
		}
	})
}

func TestAnnouncementsOfTheLongDeadAreDeleted(t *testing.T) {
	w := newWorld(t)
	l, err := New(Options{Kube: w.kube, Identity: "me", Namespace: w.namespace, Duration: 2 * time.Minute, RenewDeadline: time.Minute, RetryPeriod: time.Second})
	must(t, err)
	client := w.kube.CoordinationV1().Leases(w.namespace)
	l.observations.watches[Name{Namespace: w.namespace}] = watchState{listed: true, up: true}
	for name, age := range map[string]time.Duration{"long-dead": 4 * time.Minute, "dead": 3 * time.Minute, "risen": time.Hour} {
		holder := name
		lease, err := client.Create(w.ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{replicaLabel: "true"}},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}, metav1.CreateOptions{})
		must(t, err)
		l.observations.saw(lease)
		n := Name{w.namespace, name}
		s := l.observations.get(n)
		s.since = time.Now().Add(-age)
		l.observations.byName[n] = s
		if name == "risen" { // renewed, which this process has not seen yet
			lease.Annotations = map[string]string{"again": "yes"}
			if _, err := client.Update(w.ctx, lease, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	newAnnouncer(l).deleteOld(w.ctx)
	left, err := client.List(w.ctx, metav1.ListOptions{})
	must(t, err)
	var names []string
	for _, lease := range left.Items {
		names = append(names, lease.Name)
	}
	if !slices.Equal(names, []string{"dead", "risen"}) {
		t.Errorf("left are %v", names)
	}
}

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
