package lease

import (
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/ptr"
)

// ability says whether a driver can be called from a replica.
type ability struct {
	mu      sync.Mutex
	reach   Reach
	changed chan struct{}
}

func newAbility(r Reach) *ability {
	return &ability{reach: r, changed: make(chan struct{})}
}

func (a *ability) get() (Reach, <-chan struct{}, time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reach, a.changed, 0
}

func (a *ability) set(r Reach) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reach = r
	close(a.changed)
	a.changed = make(chan struct{})
}

// knows waits until the replica knows whether another one is able to serve a driver.
func (r *replica) knows(other *replica, driver string, able bool) {
	r.w.t.Helper()
	for {
		for _, m := range r.Members() {
			if m.Identity == other.options.Identity && slices.Contains(m.Drivers, driver) == able {
				return
			}
		}
		if r.w.ctx.Err() != nil {
			r.w.t.Fatalf("the members are %v, want the driver with %s: %v", r.Members(), other.options.Identity, able)
		}
		pause(r.w.ctx, 10*time.Millisecond)
	}
}

// renewed waits until a lease has been written twice.
func (w *world) renewed(driver string) {
	w.t.Helper()
	last := w.get(driver).ResourceVersion
	for writes := 0; writes < 2; pause(w.ctx, 10*time.Millisecond) {
		if v := w.get(driver).ResourceVersion; v != last {
			last = v
			writes++
		}
	}
}

func TestADriverThatComesAndGoesDoesNotEndATermWhileNobodyElseCanCallIt(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		a, b := w.replica(long), w.replica(long)
		says := newAbility(Callable)
		a.holdWhile("d", says)
		a.term("d")
		b.holdWhile("d", newAbility(Unreached))
		before := w.get("d")
		for _, away := range []Reach{Away, Unreached, Away} {
			says.set(away)
			b.knows(a, "d", false)
			w.renewed("d")
			says.set(Callable)
			b.knows(a, "d", true)
			w.renewed("d")
		}
		term, after := a.term("d"), w.get("d")
		if n := a.termsBegun(); n != 1 || term.isLost() {
			t.Errorf("the driver was served %d times, want one term", n)
		}
		if !after.Spec.AcquireTime.Equal(before.Spec.AcquireTime) || ptr.Deref(after.Spec.LeaseTransitions, 0) != ptr.Deref(before.Spec.LeaseTransitions, 0) {
			t.Errorf("the lease was acquired at %v after %d transitions, before at %v after %d",
				after.Spec.AcquireTime, ptr.Deref(after.Spec.LeaseTransitions, 0), before.Spec.AcquireTime, ptr.Deref(before.Spec.LeaseTransitions, 0))
		}
	})
}

func TestADriverIsHandedOverFromAReplicaThatCannotCallItToOneThatCan(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		a, b := w.replica(long), w.replica(long)
		a.drain = make(chan struct{})
		fromA, fromB := newAbility(Callable), newAbility(Unreached)
		a.holdWhile("d", fromA)
		term := a.term("d")
		b.holdWhile("d", fromB)
		fromA.set(Away)
		fromB.set(Callable)
		b.waitsFor("d", "held by "+a.options.Identity)
		b.knows(a, "d", false)
		if err := term.Begin(0); err != nil {
			t.Errorf("begin while draining: %v", err)
		}
		close(a.drain)
		b.term("d")
		a.idle("d")
		if err := term.Begin(0); err == nil || term.isLost() {
			t.Errorf("after the release something may begin (%v), or it counts as lost: %v", err, term.isLost())
		}
	})
}
