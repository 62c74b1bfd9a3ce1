package hub

import (
	"context"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
)

// endedTerm returns a term of a lease that has been released.
func (x *executing) endedTerm() *lease.Term {
	x.t.Helper()
	leases, err := lease.New(lease.Options{Kube: x.kube, Identity: "hub", Namespace: "hub", Alone: true,
		Duration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second})
	if err != nil {
		x.t.Fatal(err)
	}
	var ended *lease.Term
	if err := leases.Hold(x.t.Context(), lease.Claim{Driver: routedDriver, Lease: lease.Name{Namespace: "hub", Name: "lease"},
		Serve: func(_ context.Context, term *lease.Term) error { ended = term; return nil }}); err != nil {
		x.t.Fatal(err)
	}
	return ended
}

// A worker that was paused goes on when its lease is over and another process works for the driver.
func TestWorkerWhoseLeaseIsOverNeitherCallsNorWrites(t *testing.T) {
	inExecution(t, nil, func(x *executing) {
		during, after := x.term, x.endedTerm()
		x.term = after
		if err := x.look(); !isFenced(err) || len(x.session.calls) > 0 || len(x.get().Finalizers) > 0 {
			t.Errorf("before the finalizers: %v, calls %v, finalizers %v", err, x.session.calls, x.get().Finalizers)
		}
		x.term = during
		x.session.answer = func(string) error { x.term = after; return nil }
		if err := x.look(); !isFenced(err) || x.get().Status.Attached {
			t.Errorf("after the call: %v, %+v", err, x.get().Status)
		}
		x.delete()
		called := len(x.session.calls)
		if err := x.look(); !isFenced(err) || len(x.session.calls) > called || len(x.get().Finalizers) == 0 {
			t.Errorf("before the detach: %v, calls %v, finalizers %v", err, x.session.calls, x.get().Finalizers)
		}
	})
}
