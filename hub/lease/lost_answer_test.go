package lease

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/ptr"
)

// loseOne makes the answer to the next write of the replica get lost.
func (r *replica) loseOne(also func()) {
	var once sync.Once
	lose := func() (err error) {
		once.Do(func() {
			also()
			err = errCut
		})
		return err
	}
	r.lose.Store(&lose)
}

func TestALeaseThatWasTakenWithoutAnAnswerIsServedSoon(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		r := w.replica(alone, long)
		r.loseOne(func() {})
		started := time.Now()
		r.hold("d")
		r.term("d")
		if took := time.Since(started); took > 30*time.Second {
			t.Errorf("served after %v: it waited for its own lease to expire", took)
		}
		if l := w.get("d"); ptr.Deref(l.Spec.HolderIdentity, "") != r.options.Identity || ptr.Deref(l.Spec.LeaseTransitions, 0) != 0 {
			t.Errorf("the lease is %+v", l.Spec)
		}
	})
}

func TestALeaseThatMayHaveBeenTakenAtTheEndIsReleased(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		r := w.replica(alone, long)
		ctx, cancel := context.WithCancel(r.base)
		r.loseOne(cancel)
		err := r.Hold(ctx, Candidacy{Driver: "d", Lease: w.lease("d"), Serve: func(context.Context, *Term) error {
			t.Error("served after the end")
			return nil
		}})
		if err != nil {
			t.Error(err)
		}
		if h := w.holder("d"); h != "" {
			t.Errorf("the lease is held by %q", h)
		}
	})
}

func TestARenewalWithoutAnAnswerEndsNoTerm(t *testing.T) {
	for name, forbid := range map[string]func(*http.Request) bool{"watched": nil, "polled": isView} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(w *world) {
				r := w.replicaThat(forbidding(forbid), alone, long)
				r.hold("d")
				term := r.term("d")
				before := w.get("d")
				lost := make(chan struct{})
				r.loseOne(func() { close(lost) })
				<-lost
				w.renewed("d")
				after := w.get("d")
				if term.isLost() || r.termsBegun() != 1 || !after.Spec.AcquireTime.Equal(before.Spec.AcquireTime) {
					t.Errorf("the term was lost: %v; %d terms; acquired at %v, before at %v", term.isLost(), r.termsBegun(), after.Spec.AcquireTime, before.Spec.AcquireTime)
				}
			})
		})
	}
}
