package lease

import (
	"maps"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// settled waits until the replicas serve what is assigned to them, all of it, and returns how many drivers each serves.
func (w *world) settled(all []string, replicas ...*replica) map[string]int {
	w.t.Helper()
	byID := map[string]*replica{}
	for _, r := range replicas {
		byID[r.options.Identity] = r
	}
	want := owners(all, replicas...)
	for d, owner := range want {
		byID[owner].term(d)
	}
	for w.ctx.Err() == nil && !maps.Equal(w.servers.now(), want) { // one may have moved meanwhile
		pause(w.ctx, 10*time.Millisecond)
	}
	return loads(w.servers.are(all, replicas...))
}

func TestReplicasShareTheDriversThroughJoinLeaveAndKill(t *testing.T) {
	w := newWorld(t)
	all := drivers(30)
	a, b := w.replica(), w.replica()
	a.hold(all...)
	b.hold(all...)
	w.settled(all, a, b)
	c := w.replica()
	c.hold(all...)
	for id, n := range w.settled(all, a, b, c) {
		if n > 15 {
			t.Errorf("%s serves %d of 30 drivers", id, n)
		}
	}
	for _, r := range []*replica{a, b, c} {
		if m := r.Members(); len(m) != 3 || len(m[0].Drivers) != 30 {
			t.Errorf("members are %v", m)
		}
	}
	b.stop()
	w.settled(all, a, c)
	c.cutOff()
	for _, d := range all {
		a.term(d)
	}
	if m := a.Members(); len(m) != 1 || !m[0].Self {
		t.Errorf("members are %v", m)
	}
}

func TestReplicasThatStartTogetherWaitForOneAnother(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		w.drivers = drivers(30)
		a, b := w.start("a"), w.start("b")
		w.settled(w.drivers, a, b)
		if n := a.termsBegun() + b.termsBegun(); n != 30 {
			t.Errorf("30 drivers were taken %d times", n)
		}
	})
}

// termsBegun is how often the replica took a lease.
func (r *replica) termsBegun() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, times := range r.terms {
		n += times
	}
	return n
}

// A hub that starts acquires all its leases at once. It must not renew them at once ever after.
func TestLeasesThatWereAcquiredTogetherAreRenewedOneAfterTheOther(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		w.drivers = drivers(200)
		w.start("a")
		time.Sleep(time.Minute)
		leases, err := w.kube.CoordinationV1().Leases("hub").List(t.Context(), metav1.ListOptions{})
		must(t, err)
		const period, parts, least = 5 * time.Second, 5, 10 // 40 of 200 are expected in each part
		now, counts := time.Now(), [parts]int{}
		for _, l := range leases.Items {
			if isAnnouncement(&l) {
				continue
			}
			age := now.Sub(l.Spec.RenewTime.Time)
			if age > period {
				t.Errorf("%s was renewed %v ago, longer than a retry period", l.Name, age)
				continue
			}
			counts[min(parts-1, age*parts/period)]++
		}
		for i, n := range counts {
			if n < least {
				t.Errorf("part %d of the retry period has %d renewals, want at least %d of %d: %v", i+1, n, least, len(w.drivers), counts)
			}
		}
	})
}

func TestFirstRenewalIsAtASlotWithinTheRetryPeriod(t *testing.T) {
	now, period := time.Unix(1_000_000, 123456789), 5*time.Second
	for range 1000 {
		d := firstRenewal(now, period)
		if at := now.Add(d); d <= 0 || d > period || !at.Equal(at.Truncate(period/renewalSlots)) {
			t.Fatalf("first renewal after %v, at %v", d, at)
		}
	}
}
