package lease

import (
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"
)

var leaseD = Name{"ns", "d"}

// object makes a Lease as the API server would show it.
func object(n Name, version int, holder string, seconds int32) *coordinationv1.Lease {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: n.Namespace, Name: n.Name, ResourceVersion: strconv.Itoa(version)}}
	l.Spec.HolderIdentity = &holder
	if seconds > 0 {
		l.Spec.LeaseDurationSeconds = &seconds
	}
	return l
}

// watching is an observer that has listed the namespace with nothing in it.
func watching() (*observations, chan struct{}) {
	o := newObservations(make(chan struct{}, 1))
	woken := make(chan struct{}, 1)
	o.subscribe(leaseD, woken)
	o.watchUp(Name{Namespace: "ns"})
	o.list(Name{Namespace: "ns"}, nil, "1")
	return o, woken
}

func isDue(o *observations) bool { return !time.Now().Before(o.get(leaseD).expires(15 * time.Second)) }

func TestALeaseIsDueWhenItStoodForItsOwnDuration(t *testing.T) {
	for seconds, lasts := range map[int32]time.Duration{3: 3 * time.Second, 0: 15 * time.Second} { // one that does not say lasts as long as ours
		synctest.Test(t, func(t *testing.T) {
			o, _ := watching()
			o.saw(object(leaseD, 2, "x", seconds))
			for version := 3; version < 20; version++ { // renewed just in time
				time.Sleep(lasts - 1)
				if isDue(o) {
					t.Fatal("due before its duration is over")
				}
				o.saw(object(leaseD, version, "x", seconds))
			}
			o.list(Name{Namespace: "ns"}, []*coordinationv1.Lease{object(leaseD, 19, "x", seconds)}, "30") // listed anew: that is no renewal
			time.Sleep(lasts)
			if !isDue(o) {
				t.Error("not due after its duration")
			}
		})
	}
}

func TestOldNewsIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _ := watching()
		o.saw(object(leaseD, 10, "x", 3))
		o.saw(object(leaseD, 9, "", 1))
		o.sawDeleted(leaseD, "8")
		o.list(Name{Namespace: "ns"}, nil, "7")
		if s := o.get(leaseD); !s.present || s.holder() != "x" {
			t.Errorf("seen is %+v", s)
		}
		time.Sleep(3 * time.Second)
		o.saw(object(leaseD, 9, "y", 3))
		if !isDue(o) {
			t.Error("old news has renewed the lease")
		}
	})
}

func TestALeaseDeletedWhileHeldLastsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _ := watching()
		o.saw(object(leaseD, 2, "x", 3))
		time.Sleep(time.Second)
		o.sawDeleted(leaseD, "3")
		if isDue(o) {
			t.Error("due as soon as it is deleted")
		}
		time.Sleep(2 * time.Second)
		if !isDue(o) {
			t.Error("not due after its duration")
		}
		o.saw(object(leaseD, 4, "x", 3)) // its holder has made it anew
		if s := o.get(leaseD); isDue(o) || !s.present {
			t.Errorf("seen is %+v", s)
		}
		o.saw(object(leaseD, 5, "", 1)) // released
		o.sawDeleted(leaseD, "")
		if !isDue(o) {
			t.Error("a released lease that was deleted is not due")
		}
	})
}

func TestNothingIsKnownBeforeTheNamespaceIsListed(t *testing.T) {
	o := newObservations(make(chan struct{}, 1))
	if o.get(leaseD).known {
		t.Error("known before anybody has looked")
	}
	o.watchUp(Name{Namespace: "ns"})
	if o.get(leaseD).known {
		t.Error("known before the list")
	}
	o.list(Name{Namespace: "ns"}, nil, "1")
	if s := o.get(leaseD); !s.known || s.present {
		t.Errorf("seen is %+v", s)
	}
	if o.get(Name{"other", "d"}).known {
		t.Error("a lease of another namespace is known")
	}
}

func TestWhoWaitsIsWokenByItsLeaseAndByTheView(t *testing.T) {
	o, woken := watching()
	<-woken
	for what, change := range map[string]func(){
		"another holder": func() { o.saw(object(leaseD, 2, "x", 3)) },
		"outage":         func() { o.watchDown(Name{Namespace: "ns"}, errors.New("away")) },
	} {
		change()
		select {
		case <-woken:
		default:
			t.Errorf("%s: not woken", what)
		}
	}
	o.saw(object(Name{"ns", "other"}, 3, "x", 3))
	select {
	case <-woken:
		t.Error("woken by another lease")
	default:
	}
}

func TestReplicasCountAsAliveAfterATimeInWhichNobodyCouldSeeThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _ := watching()
		l := object(Name{"ns", "r"}, 2, "r", 3)
		l.Labels = map[string]string{replicaLabel: "true"}
		l.Annotations = map[string]string{driversAnnotation: "a,b"}
		o.saw(l)
		living := func() int {
			members, _ := liveMembers(Member{Identity: "self", Self: true}, o.announcements("ns"), time.Second, time.Now())
			return len(members) - 1
		}
		if living() != 1 {
			t.Error("a new replica does not live")
		}
		o.watchDown(Name{Namespace: "ns"}, errors.New("away"))
		time.Sleep(time.Minute)
		o.watchUp(Name{Namespace: "ns"})
		if living() != 1 {
			t.Error("dead at the moment in which it can be seen again")
		}
		time.Sleep(3 * time.Second)
		if living() != 0 {
			t.Error("lives though it does not renew")
		}
	})
}

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
