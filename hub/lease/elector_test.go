package lease

import (
	"context"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/registry"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// sidecar competes for the lease of a driver as csi-attacher does: client-go's elector,
// with the name of the host as identity. leads blocks until it leads; stop ends it, which releases the lease.
func (w *world) sidecar(driver, identity string, o Options) (leads, stop func()) {
	w.t.Helper()
	began := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: w.namespace, Name: registry.LeaseName(driver)},
			Client:     w.kube.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		LeaseDuration: o.Duration, RenewDeadline: o.RenewDeadline, RetryPeriod: o.RetryPeriod, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(began) },
			OnStoppedLeading: func() {},
		},
	})
	must(w.t, err)
	ctx, cancel := context.WithCancel(klog.NewContext(w.ctx, quiet(klog.Background())))
	ended := make(chan struct{})
	go func() { defer close(ended); elector.Run(ctx) }()
	stop = func() { cancel(); <-ended }
	w.t.Cleanup(stop)
	leads = func() {
		w.t.Helper()
		select {
		case <-began:
		case <-ended:
			w.t.Fatal(identity, " has never led")
		}
	}
	return leads, stop
}

func TestASidecarIsWaitedForAndGetsTheLeaseBack(t *testing.T) {
	w := newWorld(t)
	r := w.replica(lasting)
	leads, scaleAway := w.sidecar("d", "attacher-0", r.options)
	leads()
	r.hold("d")
	r.waitsFor("d", "held by attacher-0")
	if h, ok := r.Holder(w.lease("d")); !ok || h.Identity != "attacher-0" || h.Mine || h.Since.IsZero() || h.Renewed.Before(h.Since) {
		t.Errorf("holder is %+v, %v", h, ok)
	}
	scaleAway()
	term := r.term("d")
	if term.Continues() {
		t.Error("the first term continues something")
	}
	if h, ok := r.Holder(w.lease("d")); !ok || !h.Mine {
		t.Errorf("holder is %+v, %v", h, ok)
	}

	leads, scaleAway = w.sidecar("d", "attacher-0", r.options)
	r.stop()
	leads()
	if n := ptr.Deref(w.get("d").Spec.LeaseTransitions, 0); n != 2 {
		t.Errorf("%d transitions, want 2", n)
	}
	scaleAway()
}

// What the hub writes is, field by field, what client-go's elector writes.
func TestALeaseReadsAsIfAnElectorHadWrittenIt(t *testing.T) {
	w := newWorld(t)
	r := w.replica(alone, lasting)
	leads, stop := w.sidecar("elector", "me", r.options)
	leads()
	r.hold("hub")
	r.term("hub")
	compare := func(when string) {
		t.Helper()
		var fields [2]map[string]any
		for i, driver := range []string{"hub", "elector"} {
			l := w.get(driver)
			spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&l.Spec)
			must(t, err)
			if spec["holderIdentity"] != "" {
				spec["holderIdentity"] = "the holder"
			}
			// Released, both times are that of the release.
			spec["renewed"] = !l.Spec.AcquireTime.Equal(l.Spec.RenewTime)
			delete(spec, "renewTime")
			delete(spec, "acquireTime")
			if len(l.Labels)+len(l.Annotations) > 0 {
				t.Errorf("%s: %s has labels or annotations: %+v", when, driver, l.ObjectMeta)
			}
			fields[i] = spec
		}
		if diff := cmp.Diff(fields[1], fields[0]); diff != "" {
			t.Errorf("%s: the elector's (-) and the hub's (+) differ:\n%s", when, diff)
		}
	}
	w.renewed("hub")
	w.renewed("elector")
	compare("renewed")
	stop()
	r.stop()
	compare("released")
	leads, _ = w.sidecar("elector", "me too", r.options)
	leads()
	next := w.replica(alone, lasting)
	next.hold("hub")
	next.term("hub")
	w.renewed("hub")
	w.renewed("elector")
	compare("succeeded")
}
