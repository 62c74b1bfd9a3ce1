package hub

import (
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func TestDutyFollowsModeHaltAndConnection(t *testing.T) {
	const patience = 15 * time.Second
	for _, test := range []struct {
		name     string
		mode     registry.Mode
		halt     string
		up       bool
		since    time.Duration
		patience time.Duration
		want     duty
		again    time.Duration
	}{
		{name: "connected", mode: registry.ModeActive, up: true, since: time.Hour, patience: patience,
			want: duty{mode: registry.ModeActive}},
		{name: "just gone, others are not let try yet", mode: registry.ModeActive, since: 5 * time.Second, patience: patience,
			want: duty{mode: registry.ModeActive}, again: 10 * time.Second},
		{name: "gone for long", mode: registry.ModeActive, since: patience, patience: patience,
			want: duty{mode: registry.ModeActive, reserve: true}},
		{name: "without leases it does not matter", mode: registry.ModeActive, since: time.Hour,
			want: duty{mode: registry.ModeActive}},
		{name: "paused", mode: registry.ModePaused, up: true, patience: patience,
			want: duty{mode: registry.ModePaused, pausedBy: "its mode is paused"}},
		{name: "halted", mode: registry.ModeActive, halt: "another attacher", up: true, patience: patience,
			want: duty{mode: registry.ModePaused, pausedBy: "another attacher"}},
		{name: "observing does no harm while halted", mode: registry.ModeObserve, halt: "another attacher", up: true, patience: patience,
			want: duty{mode: registry.ModeObserve}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, again := dutyFor(test.mode, test.halt, test.up, test.since, test.patience)
			if got != test.want || again != test.again {
				t.Errorf("%+v, again in %v, want %+v and %v", got, again, test.want, test.again)
			}
		})
	}
}

// It may be on another node, or the wrong endpoint: other replicas serve it well.
func TestDriverThatWasNeverReachedIsLeftToThoseWhoCanCallIt(t *testing.T) {
	d := routed(t)
	p := &post{hub: &Hub{options: Options{LeaseDuration: time.Minute}}, desired: d.desired, halt: d.halt, connection: d.connection}
	expect := func(when string, want bool) {
		t.Helper()
		if now, _, _ := p.duty(time.Now()); now.reserve != want {
			t.Errorf("%s: held in reserve only: %v, want %v", when, now.reserve, want)
		}
	}
	expect("never reached", true)
	p.connection.setUp(true)
	expect("connected", false)
	p.connection.setUp(false)
	expect("just gone", false)
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
