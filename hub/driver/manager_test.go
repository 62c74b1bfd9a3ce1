package driver

import (
	"testing"
	"testing/synctest"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2/ktesting"

	"github.com/csi-attach-hub/csi-attach-hub/hub/cache"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/reconcile"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/hub/view"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// managerOf returns a Manager that does not serve its driver yet.
func managerOf(t testing.TB, spec registry.Driver, leaseDuration time.Duration) *Manager {
	t.Helper()
	kube, err := kubernetes.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	must(t, err)
	cluster := cache.New(kube)
	logger := ktesting.NewLogger(t, ktesting.NewConfig())
	o := &Options{Kube: kube, LeaseDuration: leaseDuration, Metrics: status.NewMetrics(), Cluster: cluster,
		Routes: &reconcile.Router{Cluster: cluster, Elsewhere: func(*storagev1.VolumeAttachment) {}}, View: &view.View{Cluster: cluster}}
	return New(o, logger, spec, reconcile.NewMemory(logger, spec.Name, cluster))
}

func TestWhereADriverWasLearnedIsNoReasonToTouchIt(t *testing.T) {
	m := managerOf(t, registry.Driver{Name: "d", Source: "drivers.yaml:3"}, 0)
	_, changed := m.watch()
	if m.SetSpec(registry.Driver{Name: "d", Source: "drivers.yaml:9"}) {
		t.Error("a line that has moved is taken for a change")
	}
	select {
	case <-changed:
		t.Error("a line that has moved wakes the driver")
	default:
	}
	if value := m.get().spec; value.Source != "drivers.yaml:9" {
		t.Errorf("source %s, want the new one", value.Source)
	}
	if m.SetSpec(registry.Driver{Name: "d", Source: "drivers.yaml:9", WindDown: true}) || !m.get().spec.WindDown {
		t.Error("that a driver winds down is taken for a change, or forgotten")
	}
	if !m.SetSpec(registry.Driver{Name: "d", Settings: registry.Settings{Timeout: time.Second}}) {
		t.Error("a timeout that has changed is not taken for a change")
	}
	<-changed
}

func TestWhatIsWaitedForEndsWithTheContextOrWhenItIsNotTrueAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := managerOf(t, registry.Driver{Name: "d", Endpoint: "unix:///a"}, 0)
		spec := m.get().spec
		as := spec
		ctx, stop := m.while(t.Context(), func(s state) bool { return s.isReachedAs(as) })
		defer stop()
		spec.Workers = 7
		m.SetSpec(spec)
		synctest.Wait()
		if ctx.Err() != nil {
			t.Error("a change that does not matter ends it")
		}
		spec.Endpoint = "unix:///b"
		m.SetSpec(spec)
		synctest.Wait()
		if ctx.Err() == nil {
			t.Error("it goes on, although what it depends on has changed")
		}
	})
}

func TestWhatIsNotWaitedForAnyMoreIsForgotten(t *testing.T) {
	m := managerOf(t, registry.Driver{Name: "d"}, 0)
	_, stop := m.while(t.Context(), func(state) bool { return true })
	stop()
	m.update(func(s *state) { s.up = true })
	if len(m.endings) > 0 {
		t.Errorf("%d endings are kept", len(m.endings))
	}
}

// It may be on another node, or the wrong endpoint: others serve it well.
func TestDriverThatIsAwayForMinutesOrWasNeverReachedIsLeftToThoseWhoCanCallIt(t *testing.T) {
	const timeout = time.Minute
	synctest.Test(t, func(t *testing.T) {
		m := managerOf(t, registry.Driver{Name: "d"}, timeout)
		expect := func(when string, want lease.Reach, wantAgain time.Duration) {
			t.Helper()
			if got, again := m.get().reach(timeout, time.Now()); got != want || again != wantAgain {
				t.Errorf("%s: reach %v, asked again in %v, want %v and %v", when, got, again, want, wantAgain)
			}
		}
		setUp := func(up bool) { m.setUp(up, func(s *state) { s.session = &liveSession{} }) }
		expect("never reached", lease.Unreached, never)
		setUp(true)
		expect("connected", lease.Callable, never)
		setUp(false)
		time.Sleep(10 * time.Second)
		expect("just gone", lease.JustAway, timeout-10*time.Second)
		time.Sleep(timeout - 10*time.Second)
		expect("gone for a minute", lease.Away, giveUpAfter-timeout)
		time.Sleep(giveUpAfter - timeout)
		expect("gone for long", lease.Unreached, never)
	})
}

func TestStateNamesWhatKeepsADriverFromBeingServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, begin := managerOf(t, registry.Driver{Name: "d"}, 0), time.Now()
		at := func(s int, edit func(*state)) {
			time.Sleep(time.Until(begin.Add(time.Duration(s) * time.Second)))
			m.update(edit)
		}
		check := func(state, reason string, since int) {
			t.Helper()
			want := begin.Add(time.Duration(since) * time.Second)
			if got := m.get(); got.State != state || got.Reason != reason || !got.Since.Equal(want) {
				t.Errorf("%s %q since %v, want %s %q since %v", got.State, got.Reason, got.Since, state, reason, want)
			}
		}
		check(status.StateConnecting, "not tried yet", 0)
		at(1, func(s *state) { s.waiting = "held by sidecar" })
		check(status.StateConnecting, "not tried yet", 0) // first things first
		at(2, func(s *state) { s.connection, s.connectionReason = status.StateReady, "" })
		check(status.StateWaitingForLease, "held by sidecar", 2)
		at(3, func(s *state) { s.waiting = "held by another" })
		check(status.StateWaitingForLease, "held by another", 2)
		at(4, func(s *state) { s.waiting = "" })
		check(status.StateReady, "", 4)
		at(5, func(s *state) { s.draining = "calls in flight may end" })
		check(status.StateDraining, "calls in flight may end", 5)
		at(6, func(s *state) { s.draining, s.role.mode = "", registry.ModePaused })
		check(status.StatePaused, "paused by `mode: paused` in drivers.yaml", 6)
		at(7, func(s *state) { s.connection, s.connectionReason = status.StateLost, "the connection has ended" })
		check(status.StateLost, "the connection has ended", 7)
	})
}

// A session that takes no calls yet, or not any more, must not be called: the lanes follow at once.
func TestLeaderHasActedOnAChangeOfTheConnectionWhenThatReturns(t *testing.T) {
	for name, drains := range map[string]bool{"while it works": false, "while it drains": true} {
		t.Run(name, func(t *testing.T) {
			d := routed(t)
			d.connectTo(publishing{})
			d.driver.update(func(s *state) { s.leader = d })
			if drains {
				d.driver.update(func(s *state) { s.draining = "it ends" })
			}
			d.driver.setUp(true, func(*state) {})
			if opened := d.opened != nil; opened == drains {
				t.Errorf("lanes opened: %v", opened)
			}
		})
	}
}

func TestDriverIsDownSinceItCouldLastBeCalled(t *testing.T) {
	m := routed(t).driver
	m.setUp(true, func(*state) {})
	m.setUp(false, func(*state) {})
	want := m.get().upSince
	m.setUp(false, func(*state) {})
	if got := m.Look(); !got.DownSince.Equal(want) || want.IsZero() {
		t.Errorf("down since %s, want %s", got.DownSince, want)
	}
}
