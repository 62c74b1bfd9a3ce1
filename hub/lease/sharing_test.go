package lease

import (
	"testing"
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
