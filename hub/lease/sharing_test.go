package lease

import (
	"maps"
	"slices"
	"testing"
	"time"
)

// served waits until each driver is served by exactly one of the replicas, who shares
// with the expected number of others, and returns by whom.
func (w *world) served(all []string, replicas ...*replica) map[string]*replica {
	w.t.Helper()
	for {
		by := map[string]*replica{}
		twice := 0
		var changed []chan struct{}
		for _, r := range replicas {
			r.mu.Lock()
			for d := range r.serving {
				if by[d] != nil {
					twice++
				}
				by[d] = r
			}
			changed = append(changed, r.changed)
			r.mu.Unlock()
		}
		if len(by) == len(all) && twice == 0 {
			return by
		}
		select {
		case <-w.ctx.Done():
			w.t.Fatalf("%d of %d drivers are served", len(by), len(all))
		case <-changed[0]:
		case <-changed[len(changed)/2]:
		case <-changed[len(changed)-1]:
		}
	}
}

// settled waits until the replicas serve what share says, all of it.
func (w *world) settled(all []string, replicas ...*replica) map[string]*replica {
	w.t.Helper()
	var members []Member
	byID := map[string]*replica{}
	for _, r := range replicas {
		members = append(members, Member{Identity: r.options.Identity, Drivers: all})
		byID[r.options.Identity] = r
	}
	owners := assign(members)
	for _, d := range all {
		byID[owners[d]].term(d)
	}
	by := w.served(all, replicas...)
	for d, r := range by {
		if r.options.Identity != owners[d] {
			w.t.Fatalf("%s is served by %s, but belongs to %s", d, r.options.Identity, owners[d])
		}
	}
	return by
}

func count(by map[string]*replica) map[string]int {
	n := map[string]int{}
	for _, r := range by {
		n[r.options.Identity]++
	}
	return n
}

func TestReplicasShareTheDriversThroughJoinLeaveAndKill(t *testing.T) {
	w := newWorld(t)
	all := drivers(30)
	started := time.Now()
	a, b := w.replica(), w.replica()
	a.hold(all...)
	b.hold(all...)
	two := w.settled(all, a, b)
	t.Logf("two replicas: %v after %v, taken %d times", slices.Sorted(maps.Values(count(two))), time.Since(started), a.termsBegun()+b.termsBegun())
	// Who starts together waits for one another, and does not grab everything. What is lost on a slow machine is taken again.
	if n := a.termsBegun() + b.termsBegun() - a.termsLost() - b.termsLost(); n > 36 {
		t.Errorf("30 drivers were taken %d times at the start", n)
	}

	started = time.Now()
	c := w.replica()
	c.hold(all...)
	three := w.settled(all, a, b, c)
	t.Logf("joined: %v after %v", slices.Sorted(maps.Values(count(three))), time.Since(started))
	for id, n := range count(three) {
		if n > 15 {
			t.Errorf("%s serves %d of 30 drivers", id, n)
		}
	}
	for _, r := range []*replica{a, b, c} {
		if m := r.Members(); len(m) != 3 || len(m[0].Drivers) != 30 {
			t.Errorf("members are %v", m)
		}
	}

	started = time.Now()
	b.stop()
	after := w.settled(all, a, c)
	t.Logf("left: %v after %v", slices.Sorted(maps.Values(count(after))), time.Since(started))

	started = time.Now()
	c.cutOff()
	for _, d := range all {
		a.term(d)
	}
	t.Logf("killed: %v after %v", a.count(), time.Since(started))
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
