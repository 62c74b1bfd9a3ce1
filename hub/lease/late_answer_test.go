package lease

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/fakekube"
)

// lateAnswers is an API server that answers late.
type lateAnswers struct {
	*fakekube.API
	late time.Duration
}

// RoundTrip implements http.RoundTripper.
func (l lateAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.API.RoundTrip(r)
	time.Sleep(l.late)
	return response, err
}

// lockIn returns the lock of one lease for a process, in an API.
func lockIn(t *testing.T, api http.RoundTripper, identity string) *lock {
	t.Helper()
	kube := kubernetes.NewForConfigOrDie(&rest.Config{Host: "http://fakekube", Transport: api, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"}})
	l, err := New(Options{Kube: kube, Identity: identity, Namespace: "hub", Alone: true, Duration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 5 * time.Second})
	must(t, err)
	return l.lock(Name{"hub", "d"})
}

// Others count a lease from when they see it written. A holder that counted from the answer would work beside its successor.
func TestALeaseCountsFromWhenItsWriteWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const late = 2 * time.Second
		k := lockIn(t, lateAnswers{fakekube.New(), late}, "a")
		term, err := k.acquire(t.Context(), observation{known: true})
		must(t, err)
		if got := term.lastRenewal().age(); got != late {
			t.Errorf("acquired %v ago, want %v", got, late)
		}
		time.Sleep(time.Second)
		must(t, k.renew(t.Context(), term))
		if got := term.lastRenewal().age(); got != late {
			t.Errorf("renewed %v ago, want %v", got, late)
		}
	})
}

// Two processes see a lease that its dead holder has left, and both decide to take it.
func TestALeaseThatAnotherHasTakenSinceItWasSeenIsNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fakekube.New()
		if _, err := lockIn(t, api, "dead").acquire(t.Context(), observation{known: true}); err != nil {
			t.Fatal(err)
		}
		a, b := lockIn(t, api, "a"), lockIn(t, api, "b")
		seen, err := b.read(t.Context())
		must(t, err)
		if _, err := a.acquire(t.Context(), seen); err != nil {
			t.Fatal(err)
		}
		if _, err := b.acquire(t.Context(), seen); !errors.Is(err, errStale) {
			t.Errorf("the second process got %v, want %v", err, errStale)
		}
		if now, err := b.read(t.Context()); err != nil || now.holder() != "a" {
			t.Errorf("the lease is held by %q (%v)", now.holder(), err)
		}
	})
}
