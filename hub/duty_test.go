package hub

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func TestDutyFollowsModeAndHalt(t *testing.T) {
	for _, test := range []struct {
		name string
		mode registry.Mode
		halt string
		want duty
	}{
		{name: "active", mode: registry.ModeActive, want: duty{mode: registry.ModeActive}},
		{name: "paused", mode: registry.ModePaused, want: duty{mode: registry.ModePaused, pausedBy: "its mode is paused"}},
		{name: "halted", mode: registry.ModeActive, halt: "another attacher", want: duty{mode: registry.ModePaused, pausedBy: "another attacher"}},
		{name: "observing does no harm while halted", mode: registry.ModeObserve, halt: "another attacher", want: duty{mode: registry.ModeObserve}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := dutyFor(test.mode, test.halt); got != test.want {
				t.Errorf("%+v, want %+v", got, test.want)
			}
		})
	}
}

// It may be on another node, or the wrong endpoint: other replicas serve it well.
func TestDriverThatWasNeverReachedIsLeftToThoseWhoCanCallIt(t *testing.T) {
	const timeout = time.Minute
	synctest.Test(t, func(t *testing.T) {
		c := &connection{changed: make(chan struct{})}
		a := &absence{connection: c, timeout: timeout}
		expect := func(when string, want bool, wantAgain time.Duration) {
			t.Helper()
			if able, _, again := a.able(); able != want || again != wantAgain {
				t.Errorf("%s: it can be called from here: %v, asked again in %v, want %v and %v", when, able, again, want, wantAgain)
			}
		}
		expect("never reached", false, 0)
		c.setUp(true)
		expect("connected", true, 0)
		c.setUp(false)
		time.Sleep(10 * time.Second)
		expect("just gone", true, timeout-10*time.Second)
		time.Sleep(timeout - 10*time.Second)
		expect("gone for long", false, 0)
	})
}

func TestStateNamesWhatKeepsADriverFromBeingServed(t *testing.T) {
	begin := time.Unix(1000, 0)
	c := newCondition(begin)
	at := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
	check := func(state State, reason string, since time.Time) {
		t.Helper()
		if got := c.get(); got.State != state || got.Reason != reason || !got.Since.Equal(since) {
			t.Errorf("%s %q since %v, want %s %q since %v", got.State, got.Reason, got.Since, state, reason, since)
		}
	}
	check(Connecting, "not tried yet", begin)
	c.wait("held by sidecar", at(1))
	check(Connecting, "not tried yet", begin) // first things first
	c.enter(Ready, "", at(2))
	check(WaitingForLease, "held by sidecar", at(2))
	c.wait("held by another", at(3))
	check(WaitingForLease, "held by another", at(2))
	c.wait("", at(4))
	check(Ready, "", at(4))
	c.drain("calls in flight may end", at(5))
	check(Draining, "calls in flight may end", at(5))
	c.drain("", at(6))
	c.change(at(6), func(p *conditionParts) { p.paused = "its mode is paused" })
	check(Paused, "its mode is paused", at(6))
	c.enter(Lost, "the connection has ended", at(7))
	check(Lost, "the connection has ended", at(7))
}
