package hub

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2/ktesting"

	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// managerOf returns a manager that does not serve its driver yet.
func managerOf(t testing.TB, spec registry.Driver, leaseDuration time.Duration) *manager {
	t.Helper()
	h := routed(t).hub
	h.options.LeaseDuration = leaseDuration
	logger := ktesting.NewLogger(t, ktesting.NewConfig())
	return h.newManager(logger, spec, h.newMemory(logger, spec.Name))
}

func TestWhereADriverWasLearnedIsNoReasonToTouchIt(t *testing.T) {
	m := managerOf(t, registry.Driver{Name: "d", Source: "drivers.yaml:3"}, 0)
	_, changed := m.watch()
	if m.setSpec(registry.Driver{Name: "d", Source: "drivers.yaml:9"}) {
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
	if m.setSpec(registry.Driver{Name: "d", Source: "drivers.yaml:9", WindDown: true}) || !m.get().spec.WindDown {
		t.Error("that a driver winds down is taken for a change, or forgotten")
	}
	if !m.setSpec(registry.Driver{Name: "d", Settings: registry.Settings{Timeout: time.Second}}) {
		t.Error("a timeout that has changed is not taken for a change")
	}
	<-changed
}

func TestWhatIsWaitedForEndsWithTheContextOrWhenItIsNotTrueAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := managerOf(t, registry.Driver{Name: "d", Endpoint: "unix:///a"}, 0)
		spec := m.get().spec
		as := spec
		ctx, stop := m.while(t.Context(), func(s driverState) bool { return s.isReachedAs(as) })
		defer stop()
		spec.Workers = 7
		m.setSpec(spec)
		synctest.Wait()
		if ctx.Err() != nil {
			t.Error("a change that does not matter ends it")
		}
		spec.Endpoint = "unix:///b"
		m.setSpec(spec)
		synctest.Wait()
		if ctx.Err() == nil {
			t.Error("it goes on, although what it depends on has changed")
		}
	})
}

// It may be on another node, or the wrong endpoint: others serve it well.
func TestDriverThatIsAwayForMinutesOrWasNeverReachedIsLeftToThoseWhoCanCallIt(t *testing.T) {
	const timeout = time.Minute
	synctest.Test(t, func(t *testing.T) {
		m := managerOf(t, registry.Driver{Name: "d"}, timeout)
		expect := func(when string, want lease.Reach, wantAgain time.Duration) {
			t.Helper()
			if got, _, again := m.reach(); got != want || again != wantAgain {
				t.Errorf("%s: reach %v, asked again in %v, want %v and %v", when, got, again, want, wantAgain)
			}
		}
		setUp := func(up bool) { m.setUp(up, func(s *driverState) { s.session = &liveSession{} }) }
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
		at := func(s int, edit func(*driverState)) {
			time.Sleep(time.Until(begin.Add(time.Duration(s) * time.Second)))
			m.update(edit)
		}
		check := func(state State, reason string, since int) {
			t.Helper()
			want := begin.Add(time.Duration(since) * time.Second)
			if got := m.get(); got.State != state || got.Reason != reason || !got.Since.Equal(want) {
				t.Errorf("%s %q since %v, want %s %q since %v", got.State, got.Reason, got.Since, state, reason, want)
			}
		}
		check(Connecting, "not tried yet", 0)
		at(1, func(s *driverState) { s.waiting = "held by sidecar" })
		check(Connecting, "not tried yet", 0) // first things first
		at(2, func(s *driverState) { s.setConnection(Ready, "") })
		check(WaitingForLease, "held by sidecar", 2)
		at(3, func(s *driverState) { s.waiting = "held by another" })
		check(WaitingForLease, "held by another", 2)
		at(4, func(s *driverState) { s.waiting = "" })
		check(Ready, "", 4)
		at(5, func(s *driverState) { s.draining = "calls in flight may end" })
		check(Draining, "calls in flight may end", 5)
		at(6, func(s *driverState) { s.draining, s.role.mode = "", registry.ModePaused })
		check(Paused, "paused by `mode: paused` in drivers.yaml", 6)
		at(7, func(s *driverState) { s.setConnection(Lost, "the connection has ended") })
		check(Lost, "the connection has ended", 7)
	})
}

// A session that takes no calls yet, or not any more, must not be called: the lanes follow at once.
func TestLeaderHasActedOnAChangeOfTheConnectionWhenThatReturns(t *testing.T) {
	for name, drains := range map[string]bool{"while it works": false, "while it drains": true} {
		t.Run(name, func(t *testing.T) {
			d := routed(t)
			d.connectTo(publishing{})
			d.update(func(s *driverState) { s.leader = d })
			if drains {
				d.shut()
			}
			d.setUp(true, func(*driverState) {})
			if d.opened == drains {
				t.Errorf("lanes opened: %v", d.opened)
			}
		})
	}
}

func TestDriverIsDownSinceItCouldLastBeCalled(t *testing.T) {
	m := routed(t).manager
	m.setUp(true, func(*driverState) {})
	m.setUp(false, func(*driverState) {})
	want := m.get().upSince
	m.setUp(false, func(*driverState) {})
	if got := m.look(); !got.DownSince.Equal(want) || want.IsZero() {
		t.Errorf("down since %s, want %s", got.DownSince, want)
	}
}
