package lease

import (
	"testing"
	"time"
)

// settled waits until the replicas serve what is assigned to them, all of it, and returns how many drivers each serves.
func (w *world) settled(all []string, replicas ...*replica) map[string]int {
	w.t.Helper()
	byID := map[string]*replica{}
	for _, r := range replicas {
		byID[r.options.Identity] = r
	}
	for d, owner := range owners(all, replicas...) {
		byID[owner].term(d)
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
	// Who starts together waits for one another, and does not grab everything. What is lost on a slow machine is taken again.
	if n := a.termsBegun() + b.termsBegun() - a.termsLost() - b.termsLost(); n > 36 {
		t.Errorf("30 drivers were taken %d times at the start", n)
	}
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

// termsBegun is how often the replica took a lease.
func (r *replica) termsBegun() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, times := range r.terms {
		n += times
	}
	return n
}

// termsLost is how many of them ended because the lease was not renewed in time.
func (r *replica) termsLost() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost
}

func TestADriverStaysWithWhoTookItFromAnOwnerThatDidNot(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		idle := w.start("idle", func(r *replica) { r.w = w.elsewhere() }) // it takes none of these leases
		a := w.start("a")
		time.Sleep(2 * time.Minute)
		if loads(owners(w.drivers, a, idle))["idle"] == 0 {
			t.Fatal("no driver is assigned to the idle replica")
		}
		if a.count() != len(w.drivers) || a.termsBegun() != len(w.drivers) {
			t.Errorf("a serves %d drivers, and took %d", a.count(), a.termsBegun())
		}
		// A third replica comes: a hands over what is assigned to it, and nothing else.
		c := w.start("c")
		time.Sleep(2 * time.Minute)
		moves := 0
		for d, owner := range owners(w.drivers, a, idle, c) {
			want := a
			if owner == "c" {
				want = c
				moves++
			}
			if got := w.servers.of(d); got != want {
				t.Errorf("%s is served by %s, want %s", d, got.options.Identity, want.options.Identity)
			}
		}
		if moves == 0 || a.termsBegun() != len(w.drivers) || c.termsBegun() != moves {
			t.Errorf("a has taken drivers %d times, want %d; c %d times, want %d", a.termsBegun(), len(w.drivers), c.termsBegun(), moves)
		}
	})
}
