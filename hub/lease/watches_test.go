package lease

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// leases runs Leases until the test ends.
func (v *virtualReplicas) leases(kube Kube) *Leases {
	v.t.Helper()
	l, err := New(Options{Kube: kube, Identity: "a", Namespace: "hub", Duration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second})
	if err != nil {
		v.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(v.t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = l.Run(ctx) })
	v.t.Cleanup(func() { cancel(); running.Wait() })
	time.Sleep(time.Minute)
	return l
}

// hold competes for a lease of a driver in another namespace, and holds it until it is released.
func (v *virtualReplicas) hold(l *Leases, n Name) (release func() error) {
	ctx, cancel := context.WithCancel(v.t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- l.Hold(ctx, Claim{Driver: n.Name, Lease: n, Serve: func(stop context.Context, _ *Term) error { <-stop.Done(); return nil }})
	}()
	return func() error { cancel(); return <-ended }
}

// begun returns how many watches there are.
func (l *Leases) begun() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.watches)
}

// The watches of Leases in other namespaces never ended: each driver that came and went left one.
func TestWatchOfALeaseEndsWithItsLastClaim(t *testing.T) {
	inVirtualTime(t, func(v *virtualReplicas) {
		l := v.leases(v.api.Client())
		for i := range 5 {
			n := Name{fmt.Sprint("ns", i), "lease"}
			first := v.hold(l, n)
			time.Sleep(10 * time.Second)
			if h, ok := l.observations.get(n), l.observations.watchOf(n).up; h.holder() != "a" || !ok {
				t.Errorf("%s is held by %q, watched: %v", n, h.holder(), ok)
			}
			second := v.hold(l, n) // waits for the first
			time.Sleep(time.Second)
			if first() != nil {
				t.Error("Hold failed")
			}
			time.Sleep(10 * time.Second)
			if got := l.begun(); got != 2 {
				t.Errorf("%d watches, want that of the replicas and of %s", got, n)
			}
			if second() != nil {
				t.Error("Hold failed")
			}
			time.Sleep(time.Second)
			if got := l.begun(); got != 1 {
				t.Errorf("%d watches, want that of the replicas alone", got)
			}
			if got := l.observations.get(n); got.known || l.observations.watchOf(n) != (watchState{}) {
				t.Errorf("%+v is known of a lease that is not watched", got)
			}
		}
	})
}

// A status page asks who holds the lease of a driver that another process works for.
func TestLeaseWhoseHolderIsAskedForIsWatchedForAWhile(t *testing.T) {
	inVirtualTime(t, func(v *virtualReplicas) {
		l, other := v.leases(v.api.Client()), v.leases(v.api.Client())
		n := Name{"elsewhere", "lease"}
		release := v.hold(other, n)
		defer func() { _ = release() }()
		time.Sleep(time.Second)
		l.Holder(n)
		time.Sleep(askedFor - time.Second)
		if h, ok := l.Holder(n); !ok || h.Identity != "a" {
			t.Errorf("%+v, %v, want the holder", h, ok)
		}
		time.Sleep(askedFor - time.Second)
		if got := l.begun(); got != 2 {
			t.Errorf("%d watches, want that of the replicas and of the lease that was asked for", got)
		}
		time.Sleep(2 * time.Second)
		if got := l.begun(); got != 1 {
			t.Errorf("%d watches %s after Holder was called, want one", got, askedFor)
		}
	})
}

// fragileKube panics when the Leases of one namespace are watched, a few times.
type fragileKube struct {
	Kube
	namespace string
	panics    *int
}

type fragileGroup struct {
	coordinationclient.CoordinationV1Interface
	kube fragileKube
}

type fragileLeases struct {
	coordinationclient.LeaseInterface
	panics *int
}

func (k fragileKube) CoordinationV1() coordinationclient.CoordinationV1Interface {
	return fragileGroup{k.Kube.CoordinationV1(), k}
}

func (g fragileGroup) Leases(namespace string) coordinationclient.LeaseInterface {
	if namespace != g.kube.namespace {
		return g.CoordinationV1Interface.Leases(namespace)
	}
	return fragileLeases{g.CoordinationV1Interface.Leases(namespace), g.kube.panics}
}

func (l fragileLeases) Watch(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	if *l.panics > 0 {
		*l.panics--
		panic("odd answer")
	}
	return l.LeaseInterface.Watch(ctx, o)
}

func TestPanicInTheWatchOfALeaseBeginsTheWatchAnew(t *testing.T) {
	inVirtualTime(t, func(v *virtualReplicas) {
		panics := 2
		l := v.leases(fragileKube{v.api.Client(), "ns", &panics})
		n := Name{"ns", "lease"}
		release := v.hold(l, n)
		time.Sleep(time.Minute)
		if seen := l.observations.get(n); panics > 0 || seen.holder() != "a" || !l.observations.watchOf(n).up {
			t.Errorf("%d panics are left, and the lease is held by %q, watched: %+v", panics, seen.holder(), l.observations.watchOf(n))
		}
		if err := release(); err != nil {
			t.Error(err)
		}
	})
}
