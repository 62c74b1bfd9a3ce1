package lease

import (
	"k8s.io/utils/ptr"
	"testing"
	"time"
)

func TestLeaseIsHeldUntilAllWorkHasEnded(t *testing.T) {
	w := newWorld(t)
	r := w.replica(alone)
	r.drain = make(chan struct{})
	r.hold("d")
	term := r.term("d")
	if h := w.holder("d"); h != r.options.Identity {
		t.Errorf("the lease is held by %q", h)
	}
	before := w.get("d").ResourceVersion
	stopped := make(chan struct{})
	go func() { defer close(stopped); r.stop() }()
	// Two more renewals while the work drains.
	for seen := 0; seen < 2; {
		if v := w.get("d"); v.ResourceVersion != before {
			before = v.ResourceVersion
			seen++
			if ptr.Deref(v.Spec.HolderIdentity, "") != r.options.Identity {
				t.Fatalf("the lease is held by %q while the work drains", ptr.Deref(v.Spec.HolderIdentity, ""))
			}
		}
	}
	if err := term.Begin(0); err != nil {
		t.Errorf("begin while draining: %v", err)
	}
	close(r.drain)
	<-stopped
	if h := w.holder("d"); h != "" {
		t.Errorf("the lease is held by %q after the release", h)
	}
	if err := term.Begin(0); err == nil {
		t.Error("something may begin after the release")
	}
	if term.isLost() {
		t.Error("a lease that was released counts as lost")
	}
}

func TestReleasedLeaseIsTakenAtOnce(t *testing.T) {
	w := newWorld(t)
	a, b := w.replica(alone, long), w.replica(alone, long)
	a.hold("d")
	a.term("d")
	b.hold("d")
	b.waitsFor("d", "held by "+a.options.Identity+" since ")
	started := time.Now()
	a.stop()
	b.term("d")
	t.Logf("taken after %v", time.Since(started))
	if time.Since(started) > 30*time.Second {
		t.Error("the lease was waited for")
	}
	if n := ptr.Deref(w.get("d").Spec.LeaseTransitions, 0); n != 1 {
		t.Errorf("%d transitions, want 1", n)
	}
}
