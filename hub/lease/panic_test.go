package lease

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// fragileKube panics at requests for the Leases of one namespace.
type fragileKube struct {
	Kube
	namespace       string
	watches, writes *atomic.Int32 // how often it is still to panic
}

type fragileGroup struct {
	coordinationclient.CoordinationV1Interface
	kube fragileKube
}

type fragileLeases struct {
	coordinationclient.LeaseInterface
	fragileKube
}

func (k fragileKube) CoordinationV1() coordinationclient.CoordinationV1Interface {
	return fragileGroup{k.Kube.CoordinationV1(), k}
}

func (g fragileGroup) Leases(namespace string) coordinationclient.LeaseInterface {
	if namespace != g.kube.namespace {
		return g.CoordinationV1Interface.Leases(namespace)
	}
	return fragileLeases{g.CoordinationV1Interface.Leases(namespace), g.kube}
}

func (l fragileLeases) Watch(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	breakDown(l.watches)
	return l.LeaseInterface.Watch(ctx, o)
}

func (l fragileLeases) Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	breakDown(l.writes)
	return l.LeaseInterface.Update(ctx, lease, o)
}

func breakDown(times *atomic.Int32) {
	if times.Add(-1) >= 0 {
		panic("odd answer")
	}
}

func fragile(kube Kube) fragileKube {
	return fragileKube{kube, "ns", new(atomic.Int32), new(atomic.Int32)}
}

func TestPanicInTheWatchOfALeaseBeginsTheWatchAnew(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		kube := fragile(w.kube)
		kube.watches.Store(2)
		l := w.replica(named("a"), func(o *Options) { o.Kube = kube })
		n := Name{"ns", "lease"}
		release := l.compete(n)
		time.Sleep(time.Minute)
		if seen := l.observations.get(n); kube.watches.Load() > 0 || seen.holder() != "a" || !l.observations.watchOf(n).up {
			t.Errorf("%d panics are left, and the lease is held by %q, watched: %+v", kube.watches.Load(), seen.holder(), l.observations.watchOf(n))
		}
		if err := release(); err != nil {
			t.Error(err)
		}
	})
}

// Nobody renews the lease any more, or looks whether it is lost: the work has to end.
func TestPanicInAGoroutineOfHoldEndsTheTermAndNotTheProcess(t *testing.T) {
	for name, breakAt := range map[string]func(kube fragileKube, reach *atomic.Int32){
		"renewal":     func(kube fragileKube, _ *atomic.Int32) { kube.writes.Store(1) },
		"supervision": func(_ fragileKube, reach *atomic.Int32) { reach.Store(1) },
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(w *world) {
				kube, reach := fragile(w.kube), new(atomic.Int32)
				l := w.replica(named("a"), func(o *Options) { o.Kube = kube })
				ctx, cancel := context.WithCancel(w.ctx)
				terms, lost := 0, 0
				candidacy := Candidacy{Driver: "d", Lease: Name{"ns", "lease"},
					Reach: func() (Reach, <-chan struct{}, time.Duration) {
						breakDown(reach)
						return Callable, nil, 0
					},
					Serve: func(stop context.Context, term *Term) error {
						terms++
						<-stop.Done()
						if term.isLost() {
							lost++
						}
						return nil
					}}
				ended := make(chan error, 1)
				go func() { ended <- l.Hold(ctx, candidacy) }()
				time.Sleep(10 * time.Second)
				breakAt(kube, reach)
				if err := <-ended; err == nil || !strings.Contains(err.Error(), "odd answer") || terms != 1 || lost != 1 {
					t.Errorf("Hold ended with %v after %d terms, of which %d were lost; want the panic, after one that was lost", err, terms, lost)
				}
				go func() { ended <- l.Hold(ctx, candidacy) }()
				time.Sleep(time.Minute)
				cancel()
				if err := <-ended; err != nil || terms != 2 || lost != 1 {
					t.Errorf("Hold ended with %v after %d terms, of which %d were lost; want a second one that was not", err, terms, lost)
				}
			})
		})
	}
}
