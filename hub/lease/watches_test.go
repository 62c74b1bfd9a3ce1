package lease

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// compete competes for a lease of a driver in another namespace, and holds it until it is released.
func (r *replica) compete(n Name) (release func() error) {
	ctx, cancel := context.WithCancel(r.base)
	ended := make(chan error, 1)
	go func() {
		ended <- r.Hold(ctx, Candidacy{Driver: n.Name, Lease: n, Serve: func(stop context.Context, _ *Term) error { <-stop.Done(); return nil }})
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
func TestWatchOfALeaseEndsWithItsLastCandidacy(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		l := w.replica(named("a"))
		for i := range 5 {
			n := Name{fmt.Sprint("ns", i), fmt.Sprint("lease", i)} // the fake API server looks at names alone
			first := l.compete(n)
			time.Sleep(10 * time.Second)
			if h, ok := l.observations.get(n), l.observations.watchOf(n).up; h.holder() != "a" || !ok {
				t.Errorf("%s is held by %q, watched: %v", n, h.holder(), ok)
			}
			second := l.compete(n) // waits for the first
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
			if got := l.observations.watchOf(n); got != (watchState{}) {
				t.Errorf("%+v, want nothing known of a watch that has ended", got)
			}
		}
	})
}

// A status page asks who holds the lease of a driver that another process works for.
func TestLeaseWhoseHolderIsAskedForIsWatchedForAWhile(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		l, other := w.replica(named("a")), w.replica(named("a"))
		n := Name{"elsewhere", "lease"}
		release := other.compete(n)
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

// What was seen of a Lease before its watch ended may be long ago when somebody waits for it again.
func TestWhatAWatchHasSeenIsForgottenWithIt(t *testing.T) {
	o := newObservations(make(chan struct{}, 1))
	ended, awaited, other := Name{"ns", "a"}, Name{"ns", "b"}, Name{"other", "a"}
	defer o.subscribe(awaited, make(chan struct{}, 1))()
	for _, n := range []Name{ended, awaited, other} {
		o.watchUp(n)
		o.saw(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: n.Namespace, Name: n.Name, ResourceVersion: "1"}})
	}
	o.forget(ended)
	o.forget(awaited)
	gone := Name{"other", "gone"} // nobody asks for it
	o.saw(object(gone, 2, "x", 3))
	o.sawDeleted(gone, "3")
	if _, kept := o.byName[gone]; kept {
		t.Error("a Lease that is gone is remembered")
	}
	for n, want := range map[Name]bool{ended: false, awaited: true, other: true} {
		if got := o.get(n).known; got != want {
			t.Errorf("%v is known: %v, want %v", n, got, want)
		}
	}
	if o.watchOf(ended).up || o.watchOf(awaited).up || !o.watchOf(other).up {
		t.Error("only the watch of the other Lease is up")
	}
}

// A Role with resourceNames grants list and watch only for requests that select the name.
func TestALeaseInAnotherNamespaceIsWatchedByItsNameAlone(t *testing.T) {
	w := newWorld(t)
	of := *w
	of.namespace, of.servers = w.makeNamespace(), newServers(t)
	other := &of
	others := "/namespaces/" + other.namespace + "/leases"
	first, second := "a", "b" // "d" is assigned to the first, which does not hand it over
	if before(second, first, "d") {
		first, second = second, first
	}
	a := w.replica(named(first))
	b := w.replicaThat(forbidding(func(r *http.Request) bool {
		byName := r.URL.Query().Get("fieldSelector") == "metadata.name="+other.lease("d").Name
		// Without get too: nothing is polled, so what is seen comes from the watch.
		return r.Method == http.MethodGet && strings.Contains(r.URL.Path, others) && !byName
	}), named(second))
	a.w, b.w = other, other
	a.hold("d")
	a.term("d")
	b.hold("d")
	b.waitsFor("d", "held by "+a.options.Identity)
	a.stop()
	b.term("d")
}
