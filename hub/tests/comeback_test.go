package tests

import (
	"context"
	"maps"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// shortLease is how long a lease lasts where a test waits for that.
const shortLease = 4 * time.Second

// leadShortly has hubs that are started later compete for short leases in a namespace of
// the test's own, sharing with other replicas.
func (w *world) leadShortly(identity string) {
	w.t.Helper()
	w.leadIn(lease.Options{Identity: identity, Duration: shortLease, RenewDeadline: 3 * time.Second, RetryPeriod: 500 * time.Millisecond})
}

// leadIn is leadShortly for leases of any length.
func (w *world) leadIn(o lease.Options) {
	w.t.Helper()
	if w.leases == nil {
		ns, err := w.plane.Clientset().CoreV1().Namespaces().Create(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "hub-"}}, metav1.CreateOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
		w.options.LeaseNamespace = ns.Name
		if w.leases, err = testbed.WatchLeases(w.ctx, w.plane.Clientset(), ns.Name, nil); err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(w.leases.Close)
	}
	o.Namespace = w.options.LeaseNamespace
	w.leadWith(o)
}

// waitLease waits until the lease of a driver is as it should be, and returns it.
func (w *world) waitLease(driver, what string, holds func(*coordinationv1.Lease) bool) *coordinationv1.Lease {
	w.t.Helper()
	var found *coordinationv1.Lease
	err := w.leases.WaitFor(w.ctx, driver+" "+what, func(all []*coordinationv1.Lease) bool {
		for _, l := range all {
			if l.Name == registry.LeaseName(driver) && l.Spec.HolderIdentity != nil && holds(l) {
				found = l
				return true
			}
		}
		return false
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return found
}

func heldBy(identity string) func(*coordinationv1.Lease) bool {
	return func(l *coordinationv1.Lease) bool { return *l.Spec.HolderIdentity == identity }
}

// checkSameTerm checks that a lease has been neither released nor taken since.
func checkSameTerm(t *testing.T, was, is *coordinationv1.Lease) {
	t.Helper()
	if *is.Spec.HolderIdentity != *was.Spec.HolderIdentity || !is.Spec.AcquireTime.Equal(was.Spec.AcquireTime) ||
		*is.Spec.LeaseTransitions != *was.Spec.LeaseTransitions {
		t.Errorf("the lease was let go and taken again: held by %q since %v after %d transitions, before by %q since %v after %d",
			*is.Spec.HolderIdentity, is.Spec.AcquireTime, *is.Spec.LeaseTransitions,
			*was.Spec.HolderIdentity, was.Spec.AcquireTime, *was.Spec.LeaseTransitions)
	}
}

// checkPublishedOnce checks that each of the volumes was published once, with success.
func checkPublishedOnce(t *testing.T, b fakecsi.Books, volumes ...string) {
	t.Helper()
	for _, volume := range volumes {
		calls := b.CallsOf(fakecsi.ControllerPublishVolume, volume)
		if len(calls) != 1 || calls[0].Code != codes.OK {
			t.Errorf("publishes of %s: %+v, want one that succeeded", volume, calls)
		}
	}
}

func TestADriverThatComesBackAfterLongKeepsItsTermAndItsCalls(t *testing.T) {
	t.Parallel() // it waits for leases nearly all the time
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.options.Grace = 500 * time.Millisecond // what is drained would soon be cut off
	w.leadShortly("hub-0")
	node := w.node("n", driver)
	first := w.volume("first", driver, node)
	w.start()
	w.create(first)
	w.waitForOne(first.Name, "attached", isAttached)
	before := w.waitLease(driver, "held", heldBy("hub-0"))

	w.servers[driver].Crash()
	// It is let go, nobody takes it, and it is taken again.
	again := w.waitLease(driver, "taken again", func(l *coordinationv1.Lease) bool {
		return heldBy("hub-0")(l) && !l.Spec.AcquireTime.Equal(before.Spec.AcquireTime)
	})
	w.turn(backend, fakecsi.Knobs{Latency: map[fakecsi.Method]fakecsi.Latency{fakecsi.ControllerPublishVolume: {Base: 3 * time.Second}}})
	w.create(w.volume("second", driver, node), w.volume("third", driver, node))
	if err := w.servers[driver].Start(); err != nil {
		t.Fatal(err)
	}
	w.waitAllAttached(3)
	checkPublishedOnce(t, backend.Books(), "first", "second", "third")
	checkSameTerm(t, again, w.waitLease(driver, "at all", func(*coordinationv1.Lease) bool { return true }))
}

// A driver that is too busy to say that it is well is not called, but what it is doing is
// not cut off: no other replica could call it.
func TestCallsInFlightOutlastADriverThatDoesNotAnswerItsProbes(t *testing.T) {
	t.Parallel() // it waits for leases nearly all the time
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.set(driver, func(s *registry.Settings) { s.Probe.Interval = 200 * time.Millisecond })
	w.options.Grace = 500 * time.Millisecond
	w.leadShortly("hub-0")
	va := w.volume("v", driver, w.node("n", driver))
	w.turn(backend, fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume}}})
	updates, h := w.run()
	updates <- maps.Clone(w.drivers)
	w.create(va)
	w.waitBooks(backend, "the publish is called", func(b fakecsi.Books) bool { return b.AttachInFlight.Now == 1 })
	before := w.waitLease(driver, "held", heldBy("hub-0"))

	w.turn(backend, fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.Probe, Code: codes.ResourceExhausted}}})
	w.waitShown(h, driver, "not well", func(d status.Driver) bool { return !d.Up })
	down := w.waitLease(driver, "held", heldBy("hub-0")).Spec.RenewTime.Time
	later := w.waitLease(driver, "renewed for long", func(l *coordinationv1.Lease) bool {
		return !heldBy("hub-0")(l) || l.Spec.RenewTime.Time.Sub(down) > 2*shortLease
	})
	w.turn(backend, fakecsi.Knobs{ReleaseAll: true, ClearFaults: true})
	w.waitForOne(va.Name, "attached", isAttached)
	checkSameTerm(t, before, later)
	checkPublishedOnce(t, backend.Books(), "v")
}

func TestTheReplicaThatCanCallTheDriverGetsItWhenTheOtherCannot(t *testing.T) {
	t.Parallel() // it waits for leases nearly all the time
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	// The same driver behind another endpoint: the way of the other replica.
	server, err := fakecsi.NewServer(fakecsi.ServerOptions{Backend: backend, Endpoint: "unix://" + w.dir + "/other"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Crash)
	node := w.node("n", driver)
	first, second, third := w.volume("first", driver, node), w.volume("second", driver, node), w.volume("third", driver, node)

	w.leadShortly("hub-0")
	w.start()
	w.create(first)
	w.waitForOne(first.Name, "attached", isAttached)
	w.leadShortly("hub-1")
	updates, _ := w.run()
	other := w.drivers[driver]
	other.Endpoint = registry.Endpoint(server.Endpoint())
	updates <- registry.Snapshot{driver: other}

	// Neither can call it: one of them holds the lease all the same.
	w.servers[driver].Crash()
	taken := w.waitLease(driver, "let go", heldBy(""))
	w.waitLease(driver, "taken again", func(l *coordinationv1.Lease) bool {
		return !heldBy("")(l) && l.Spec.AcquireTime.After(taken.Spec.AcquireTime.Time)
	})
	w.create(second)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	w.waitForOne(second.Name, "attached", isAttached)
	w.waitLease(driver, "with the replica that can call it", heldBy("hub-1"))

	// It goes the other way too.
	if err := w.servers[driver].Start(); err != nil {
		t.Fatal(err)
	}
	server.Crash()
	w.create(third)
	w.waitForOne(third.Name, "attached", isAttached)
	w.waitLease(driver, "with the replica that can call it", heldBy("hub-0"))
	checkPublishedOnce(t, backend.Books(), "first", "second", "third")
	w.checkBooks(map[string]int{driver: 3})
}

func TestADriverThatComesBackForTwoReplicasKeepsItsTermAndItsCalls(t *testing.T) {
	t.Parallel() // it waits for leases nearly all the time
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.options.Grace = 500 * time.Millisecond
	node := w.node("n", driver)
	first, second := w.volume("first", driver, node), w.volume("second", driver, node)
	for _, identity := range []string{"hub-0", "hub-1"} {
		// A replica looks for a driver that is away every two seconds.
		w.leadIn(lease.Options{Identity: identity, Duration: 6 * time.Second, RenewDeadline: 5 * time.Second, RetryPeriod: 4 * time.Second})
		w.start()
	}
	w.create(first)
	w.waitForOne(first.Name, "attached", isAttached)
	w.servers[driver].Crash()
	taken := w.waitLease(driver, "let go", heldBy(""))
	again := w.waitLease(driver, "taken again", func(l *coordinationv1.Lease) bool {
		return !heldBy("")(l) && l.Spec.AcquireTime.After(taken.Spec.AcquireTime.Time)
	})
	w.turn(backend, fakecsi.Knobs{Latency: map[fakecsi.Method]fakecsi.Latency{fakecsi.ControllerPublishVolume: {Base: 8 * time.Second}}})
	w.create(second)
	if err := w.servers[driver].Start(); err != nil {
		t.Fatal(err)
	}
	w.waitForOne(second.Name, "attached", isAttached)
	checkPublishedOnce(t, backend.Books(), "first", "second")
	checkSameTerm(t, again, w.waitLease(driver, "at all", func(*coordinationv1.Lease) bool { return true }))
}

func TestASidecarThatStandsByGetsTheDriverThatTheHubCannotReach(t *testing.T) {
	t.Parallel() // it waits for leases nearly all the time
	w := newWorld(t)
	driver, _ := w.driver("d", fakecsi.Options{})
	w.leadShortly("hub-0")
	node := w.node("n", driver)
	va, later := w.volume("v", driver, node), w.volume("later", driver, node)
	w.start()
	w.create(va)
	w.waitForOne(va.Name, "attached", isAttached)
	leads, stop := w.sidecar(driver, "attacher-0")
	w.servers[driver].Crash()
	select {
	case <-leads:
	case <-w.ctx.Done():
		t.Fatal("the sidecar never got the lease")
	}
	// And the hub gets it back when the sidecar goes.
	if err := w.servers[driver].Start(); err != nil {
		t.Fatal(err)
	}
	w.create(later)
	stop()
	w.waitForOne(later.Name, "attached", isAttached)
}

// sidecar competes for the lease of a driver as csi-attacher does, and announces nothing.
// leads is closed when it has the lease; stop releases it.
func (w *world) sidecar(driver, identity string) (leads <-chan struct{}, stop func()) {
	w.t.Helper()
	began := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: w.options.LeaseNamespace, Name: registry.LeaseName(driver)},
			Client:     w.plane.Clientset().CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		LeaseDuration: shortLease, RenewDeadline: 3 * time.Second, RetryPeriod: 500 * time.Millisecond, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { close(began) }, OnStoppedLeading: func() {}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(w.ctx, klog.Background()))
	ended := make(chan struct{})
	go func() { defer close(ended); elector.Run(ctx) }()
	stop = func() { cancel(); <-ended }
	w.t.Cleanup(stop)
	return began, stop
}
