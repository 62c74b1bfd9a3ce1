package tests

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/race"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// shortLease is how long a lease lasts where a test waits for that.
const shortLease = 8 * time.Second

// leadShortly has hubs that are started later compete for short leases in a namespace of the test's own.
func (w *world) leadShortly(identity string) {
	w.t.Helper()
	if w.options.LeaseNamespace == "" {
		ns, err := w.kube.CoreV1().Namespaces().Create(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "hub-"}}, metav1.CreateOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
		w.options.LeaseNamespace, w.options.LeaseDuration = ns.Name, shortLease
	}
	w.options.Leases = runLeases(&w.objects, lease.Options{Kube: w.plane.Clientset(), Identity: identity, Namespace: w.options.LeaseNamespace,
		Duration: shortLease, RenewDeadline: 6 * time.Second, RetryPeriod: 500 * time.Millisecond})
}

func TestTheReplicaThatCanCallTheDriverGetsItWhenTheOtherCannot(t *testing.T) {
	t.Parallel() // it waits for leases nearly all the time
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	server := w.server(backend, "other") // the same driver behind another endpoint: the way of the other replica
	node := w.node("n", driver)
	first, second, third := w.volume("first", driver, node), w.volume("second", driver, node), w.volume("third", driver, node)
	w.leadShortly("hub-0")
	w.start()
	leases, err := testbed.WatchLeases(w.ctx, w.kube, w.options.LeaseNamespace, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(leases.Close)
	heldBy := func(identity string) {
		t.Helper()
		err := leases.WaitFor(w.ctx, "the lease with "+identity, func(all []*coordinationv1.Lease) bool {
			return slices.ContainsFunc(all, func(l *coordinationv1.Lease) bool {
				return l.Name == registry.LeaseName(driver) && ptr.Deref(l.Spec.HolderIdentity, "") == identity
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	w.create(first)
	w.waitAttached(first)
	w.leadShortly("hub-1")
	d := w.drivers[driver]
	d.Endpoint = registry.Endpoint(server.Endpoint())
	w.drivers[driver] = d
	w.start()
	w.servers[driver].Crash()
	heldBy("") // neither can call it
	w.create(second)
	w.restart(server)
	w.waitAttached(second)
	heldBy("hub-1")
	w.restart(w.servers[driver]) // it goes the other way too
	server.Crash()
	w.create(third)
	w.waitAttached(third)
	heldBy("hub-0")
	for _, volume := range []string{"first", "second", "third"} {
		if calls := backend.Books().CallsOf(publish, volume); len(calls) != 1 || calls[0].Code != codes.OK {
			t.Errorf("publishes of %s: %+v, want one that succeeded", volume, calls)
		}
	}
	w.checkBooks(map[string]int{driver: 3})
}

// freeLeases are leases that nobody else wants. A driver that went away lately gets its lease after a time.
type freeLeases struct {
	free time.Duration

	mu    sync.Mutex
	terms int
	held  bool
}

func (f *freeLeases) Holder(lease.Name) (lease.Holder, bool) { return lease.Holder{}, false }
func (f *freeLeases) Members() []lease.Member                { return nil }

func (f *freeLeases) Hold(ctx context.Context, c lease.Candidacy) error {
	free := time.NewTimer(f.free)
	defer free.Stop()
	for isFree := false; ; {
		reach, changed, again := c.Reach()
		if reach >= lease.JustAway || reach == lease.Away && isFree {
			break
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-time.After(again):
		case <-free.C:
			isFree = true
		}
	}
	f.note(true)
	defer f.note(false)
	return c.Serve(ctx, lease.Always())
}

func (f *freeLeases) note(held bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held = held; held {
		f.terms++
	}
}

func TestALeaseIsLetGoOnceForADriverThatIsAwayForMinutesAndNotAgainWhileItComesAndGoes(t *testing.T) {
	const duration, again = 15 * time.Second, 3 * time.Second // the hub looks for a driver that is away every second or two
	cut, mend, wait := (*virtual).cut, (*virtual).mend, func(*virtual) {}
	type step struct {
		happens func(*virtual)
		pass    time.Duration
		when    string
		terms   int
		held    bool
	}
	comesAndGoes := slices.Repeat([]step{{mend, 10 * time.Second, "back", 2, true}, {cut, time.Minute, "gone again", 2, true}}, 5)
	eachInVirtualTime(t, map[string][]step{
		"it is called for long": slices.Concat([]step{
			{wait, time.Minute, "called for long", 1, true},
			{cut, duration - time.Second, "just gone", 1, true},
			{wait, 2 * time.Second, "away for long", 1, false},
			{wait, duration, "nobody else took it", 2, true},
		}, comesAndGoes, []step{
			{mend, time.Minute, "back for long", 2, true},
			{cut, duration + time.Second, "away for long again", 2, false},
			{mend, again, "back before somebody took it", 3, true},
			{cut, 5*time.Minute - time.Second, "gone soon after", 3, true},
			{wait, 2 * time.Second, "away for five minutes", 3, false},
			{wait, time.Hour, "away for an hour", 3, false},
			{mend, again, "back after an hour", 4, true},
		}),
		"it was never reached": {
			{cut, time.Hour, "away for an hour", 0, false},
			{mend, again, "there", 1, true},
			{cut, time.Minute, "away, and nobody else took it", 2, true},
		},
	}, func(v *virtual, steps []step) {
		leases := &freeLeases{free: duration}
		v.options.Leases, v.options.LeaseNamespace, v.options.LeaseDuration = leases, "ns", duration
		if steps[0].terms == 0 {
			v.cut()
		}
		v.start()
		for _, s := range steps {
			s.happens(v)
			v.pass(s.pass)
			leases.mu.Lock()
			if leases.terms != s.terms || leases.held != s.held {
				v.t.Errorf("%s: term %d, held: %v, want %d, %v", s.when, leases.terms, leases.held, s.terms, s.held)
			}
			leases.mu.Unlock()
		}
	})
}

// The next holder would attach the volume elsewhere while the driver still attaches it for this one.
func TestLeaseIsReleasedOnlyWhenTheCallsInFlightHaveEnded(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.leased()
		v.withNode("v")
		v.setKnobs(hanging(publish))
		stop := v.start()
		v.pass(time.Minute)
		v.attach("v")
		go stop()
		v.pass(5 * time.Second) // half of the grace
		if v.wantHolder("hub"); v.backend.Books().AttachInFlight.Now != 1 {
			t.Error("no call is in flight")
		}
		v.setKnobs(healed)
		v.pass(5 * time.Second)
		v.wantHolder("")
	})
}

// A call hangs and Probes fail: the driver cannot be called, and the call must end first.
func TestLeaseIsNotGivenUpWhileACallIsInFlight(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.leased()
		v.driver.Timeout = 20 * time.Minute
		v.withNode("v")
		v.start()
		v.pass(time.Second)
		v.setAway(true) // for a second connection
		v.setKnobs(fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: publish}, {Method: fakecsi.Probe}}})
		v.attach("v")
		v.pass(15 * time.Minute)
		v.wantHolder("hub")
		if up, n := v.status().Up, v.backend.Books().AttachInFlight.Now; up || n != 1 {
			t.Fatalf("up %v, %d calls in flight", up, n)
		}
		v.setKnobs(fakecsi.Knobs{Release: []fakecsi.Hang{{Method: publish}}})
		v.pass(2 * time.Second)
		v.wantAttached("v-n")
		v.wantHolder("")
	})
}

// The hub took the lease of a sidecar that was rolled out slowly, and the sidecar waited for ever.
func TestHubWithAWrongEndpointNeverTakesTheLeaseOfASidecarThatIsAwayForLong(t *testing.T) {
	race.Skip(t, race.Hours)
	inVirtualTime(t, func(v *virtual) {
		v.leased()
		_, stop := v.sidecar()
		v.pass(time.Minute)
		v.cut()
		v.start()
		v.pass(time.Minute)
		stop()
		for range 60 {
			v.pass(time.Minute)
			v.wantHolder("csi-attacher-0")
		}
		leads, _ := v.sidecar()
		v.pass(time.Minute)
		if !leads.Load() {
			t.Error("the sidecar does not work again")
		}
	})
}

func TestSidecarThatComesDuringALongOutageOfTheHubsEndpointGetsTheLeaseAndGivesItBack(t *testing.T) {
	race.Skip(t, race.Hours)
	inVirtualTime(t, func(v *virtual) {
		v.leased()
		v.start()
		v.pass(time.Minute)
		v.cut()
		v.pass(time.Minute) // the lease was offered, and nobody was there
		leads, stop := v.sidecar()
		v.pass(3 * time.Minute)
		v.wantHolder("hub")
		v.pass(time.Minute + 30*time.Second) // the sidecar looks at the lease at random times
		if !leads.Load() {
			t.Fatalf("after five minutes the lease is held by %q, want the sidecar", v.holder())
		}
		v.mend()
		v.pass(time.Hour)
		if !leads.Load() {
			t.Error("the hub took a lease that the sidecar holds")
		}
		v.cut()
		v.pass(time.Second)
		stop()
		v.pass(time.Minute)
		v.wantHolder("csi-attacher-0") // the hub cannot call the driver
		v.mend()
		v.pass(3 * time.Second)
		v.wantHolder("hub")
	})
}

// The connection was lost a second before the lease expired: the driver still counted as callable.
func TestHubTakesTheLeaseOfAnotherOnlyWhileItIsConnected(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.leased()
		_, stop := v.sidecar()
		v.pass(time.Minute)
		v.start()
		v.pass(time.Minute)
		stop()
		v.pass(9 * time.Second)
		v.cut()
		v.pass(time.Minute)
		v.wantHolder("csi-attacher-0")
	})
}

// Nobody works for the driver then, and nobody else knows of the volume.
func TestVolumeIsDetachedWhoseVolumeAttachmentVanishedWhileTheLeaseWasGivenUp(t *testing.T) {
	eachInVirtualTime(t, map[string]bool{"nobody held it since": false, "a sidecar held it in between": true}, func(v *virtual, between bool) {
		v.leased()
		v.start()
		va := v.attached()
		v.pass(time.Minute)
		v.cut()
		v.pass(10 * time.Minute)
		v.wantHolder("")
		v.wantAttached(va.Name)
		v.stripFinalizers(va.Name)
		v.delete(va)
		v.pass(time.Minute)
		v.wantDangling(1)
		if between {
			leads, stop := v.sidecar()
			v.pass(time.Minute)
			if !leads.Load() {
				v.t.Fatal("the sidecar does not have the lease")
			}
			stop()
		}
		v.mend()
		v.pass(time.Minute)
		v.wantCalls("v", "publish id-n", "unpublish id-n")
	})
}

// It is as fast as it was while the hub held the lease all the time.
func TestDriverIsServedAtOnceWhenItIsBackBeforeAndAfterTheLeaseWasGivenUp(t *testing.T) {
	eachInVirtualTime(t, map[string]time.Duration{"a minute": time.Minute, "an hour": time.Hour}, func(v *virtual, away time.Duration) {
		v.leased()
		v.withNode("v")
		v.start()
		v.pass(time.Minute)
		v.cut()
		v.pass(away)
		v.create(v.attachment("v", "n"))
		v.mend()
		var connected time.Time
		for range 1000 {
			v.pass(10 * time.Millisecond)
			if connected.IsZero() && v.status().Up {
				connected = time.Now()
			}
			if v.get("v-n").Status.Attached {
				break
			}
		}
		v.wantAttached("v-n")
		if late := time.Since(connected); late > 0 {
			v.t.Errorf("attached %v after the driver was connected, want at once", late)
		}
	})
}
