package lease

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/registry"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/ptr"
)

// steal writes another holder into the lease, whatever it says.
func (w *world) steal(driver, holder string) {
	w.t.Helper()
	patch := []byte(`[{"op":"replace","path":"/spec/holderIdentity","value":"` + holder + `"}]`)
	if _, err := w.kube.CoordinationV1().Leases(w.namespace).Patch(w.ctx, registry.LeaseName(driver), types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// waitLost blocks until a term is lost.
func (w *world) waitLost(term *Term) {
	w.t.Helper()
	select {
	case <-term.Lost().Done():
	case <-w.ctx.Done():
		w.t.Fatal("the lease is not lost")
	}
}

func TestAnOutageLosesTheLeaseBeforeAnotherCanTakeIt(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		// With csi-attacher's proportions the renew deadline passes only when the lease has expired.
		tight := func(o *Options) {
			o.Duration, o.RenewDeadline, o.RetryPeriod = 2*time.Second, 1900*time.Millisecond, 900*time.Millisecond
		}
		for range 3 {
			a, b := w.replica(alone, tight), w.replica(alone, tight)
			a.hold("d")
			term := a.term("d")
			b.hold("d")
			b.waitsFor("d", "held by "+a.options.Identity)
			a.cutOff()
			b.term("d")
			if !term.isLost() {
				t.Error("the lease has another holder, and is not lost")
			}
			if err := term.Begin(0); !errors.Is(err, ErrFenced) {
				t.Errorf("the fence is open: %v", err)
			}
			a.idle("d")
			a.waitsFor("d", "the API server cannot be reached")
			if a.Check(0) != nil {
				t.Error("who waits counts as ill")
			}
			// Back, it waits for its successor.
			a.cut.Store(false)
			a.waitsFor("d", "held by "+b.options.Identity)
			b.stop()
			if again := a.term("d"); again.Continues() {
				t.Error("a term after another's continues")
			}
			a.stop()
		}
	})
}

func TestALeaseThatIsTakenAwayIsLostAtOnce(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		r := w.replica(alone, func(o *Options) { // a renewal would notice in half a minute
			o.Duration, o.RenewDeadline, o.RetryPeriod = 120*time.Second, 110*time.Second, 60*time.Second
		})
		r.hold("d")
		term := r.term("d")
		w.steal("d", "thief")
		w.waitLost(term)
		r.idle("d")
		r.waitsFor("d", "held by thief")
		r.stop()
		if h := w.holder("d"); h != "thief" {
			t.Errorf("the lease of another was overwritten: %q", h)
		}
	})
}

func TestWithoutPermissionToWatchLeasesArePolled(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		a, b := w.replicaThat(forbidding(isView)), w.replicaThat(forbidding(isView))
		a.hold("d")
		a.term("d")
		b.hold("d")
		b.waitsFor("d", "held by "+a.options.Identity)
		a.stop()
		b.term("d")
	})
}

func TestAfterAnOutageThatNobodyUsedTheTermContinues(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		// The renew deadline counts from the first renewal that failed, as with client-go's elector.
		r := w.replica(alone, long, func(o *Options) { o.RenewDeadline = 2 * time.Second })
		r.hold("d")
		term := r.term("d")
		r.cutOff()
		w.waitLost(term)
		if age := term.lastRenewal().age(); age > 30*time.Second {
			t.Errorf("given up %v after the last renewal", age)
		}
		r.idle("d")
		r.cut.Store(false)
		if again := r.term("d"); again == term || !again.Continues() {
			t.Error("the new term does not continue the old one")
		}
	})
}

func TestErrorOfServeIsReturnedAfterTheRelease(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		r := w.replica(alone, long)
		broken := errors.New("broken")
		err := r.Hold(r.base, Candidacy{Driver: "d", Lease: w.lease("d"), Serve: func(context.Context, *Term) error { return broken }})
		if !errors.Is(err, broken) {
			t.Errorf("error is %v", err)
		}
		if h := w.holder("d"); h != "" {
			t.Errorf("the lease is held by %q", h)
		}
	})
}

func TestPanicOfServeLetsTheLeaseExpire(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		a, b := w.replica(alone), w.replica(alone)
		func() {
			defer func() {
				if p := recover(); p != "boom" {
					t.Errorf("recovered %v", p)
				}
			}()
			_ = a.Hold(a.base, Candidacy{Driver: "d", Lease: w.lease("d"), Serve: func(context.Context, *Term) error { panic("boom") }})
		}()
		if h := w.holder("d"); h != a.options.Identity {
			t.Errorf("the lease was released to %q, and what was begun may go on", h)
		}
		b.hold("d")
		b.term("d")
	})
}

func TestOneProcessServesALeaseOnce(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		r := w.replica(alone, long)
		inside := make(chan struct{}, 2)
		leave := make(chan struct{})
		reasons := make(chan string, 10)
		candidacy := Candidacy{Driver: "d", Lease: w.lease("d"),
			Serve:   func(context.Context, *Term) error { inside <- struct{}{}; <-leave; return nil },
			Waiting: func(reason string) { reasons <- reason },
		}
		ended := make(chan error, 2)
		for range 2 {
			go func() { ended <- r.Hold(r.base, candidacy) }()
		}
		<-inside
		for reason := range reasons {
			if strings.Contains(reason, "has not ended yet") {
				break
			}
		}
		if len(inside) > 0 {
			t.Error("both serve")
		}
		close(leave)
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Error(err)
		}
	})
}

func TestLeaseDeletedWhileHeldIsMadeAnewByItsHolderOnly(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		a, b := w.replica(alone), w.replica(alone)
		a.hold("d")
		term := a.term("d")
		b.hold("d")
		b.waitsFor("d", "held by "+a.options.Identity)
		must(t, w.kube.CoordinationV1().Leases(w.namespace).Delete(w.ctx, registry.LeaseName("d"), metav1.DeleteOptions{}))
		for {
			l, err := w.kube.CoordinationV1().Leases(w.namespace).Get(w.ctx, registry.LeaseName("d"), metav1.GetOptions{})
			if err == nil {
				if h := ptr.Deref(l.Spec.HolderIdentity, ""); h != a.options.Identity {
					t.Errorf("held by %q", h)
				}
				break
			}
			if w.ctx.Err() != nil {
				t.Fatal(err)
			}
			pause(w.ctx, 10*time.Millisecond)
		}
		if term.isLost() || b.termsBegun() > 0 {
			t.Errorf("lost is %v; the other served %d times", term.isLost(), b.termsBegun())
		}
	})
}

func TestCheckFailsWhenWorkOutlivesItsLease(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		r := w.replica(alone)
		r.drain = make(chan struct{})
		r.hold("d")
		term := r.term("d")
		if err := r.Check(0); err != nil {
			t.Errorf("healthy: %v", err)
		}
		r.cutOff()
		<-term.Lost().Done()
		for r.Check(0) == nil && w.ctx.Err() == nil {
			pause(w.ctx, 20*time.Millisecond)
		}
		if err := r.Check(time.Hour); err != nil {
			t.Errorf("within the grace: %v", err)
		}
		close(r.drain)
		r.idle("d")
		for r.Check(0) != nil && w.ctx.Err() == nil {
			pause(w.ctx, 20*time.Millisecond)
		}
	})
}

func TestHoldingALeaseIsQuiet(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.Verbosity(quietLevel-1), ktesting.BufferLogs(true)))
		ctx := klog.NewContext(w.ctx, logger)
		r := w.replica(alone)
		for range 2 {
			err := r.Hold(ctx, Candidacy{Driver: "d", Lease: w.lease("d"), Serve: func(context.Context, *Term) error { return nil }})
			if err != nil {
				t.Error(err)
			}
		}
		for _, line := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
			if line.Message != "Lease acquired" && line.Message != "Lease released" {
				t.Errorf("logged: %s %v", line.Message, line.WithKVList)
			}
		}
		if n := len(logger.GetSink().(ktesting.Underlier).GetBuffer().Data()); n != 4 {
			t.Errorf("%d lines, want 4", n)
		}
	})
}
