package chaos

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
)

const sec = time.Second

// leased is a write of a lease, 100 ms long, that is based on the version before.
func leased(at moment, holder string, version uint64) write {
	return write{At: at, Until: at + sec/10, place: place{Driver: "d"}, Version: version, Lease: &leaseWrite{Holder: holder, BasedOn: version - 1, Duration: 3 * sec}}
}

// unanswered is a write of a lease whose outcome is not known.
func unanswered(at moment, holder string) write {
	w := leased(at, holder, 0)
	w.Lease.BasedOn = 0
	return w
}

func called(at, until moment, by string) call {
	return call{At: at, Until: until, ID: 7, Method: publish, By: by, place: place{"d", "v", "n"}, Code: "OK"}
}

func patched(at, until moment, by string) write {
	return write{At: at, Until: until, By: by, Verb: "PATCH", place: place{"d", "v", "n"}, Code: 409}
}

func TestOnlyTheHolderOfTheLeaseMayAct(t *testing.T) {
	// a/1 holds the lease from 1 s on, releases it at 5 s; b/2 takes it at 6 s, and does not renew it.
	leases := []write{leased(1*sec, "a/1", 2), leased(3*sec, "a/1", 3), leased(5*sec, "", 4), leased(6*sec, "b/2", 5)}
	for name, c := range map[string]struct {
		calls  []call
		writes []write
		want   string // of the finding; empty: none
	}{
		"call by the holder":                 {calls: []call{called(2*sec, 3*sec, "a/1")}},
		"write by the holder":                {writes: []write{patched(2*sec, 3*sec, "a")}},
		"call before it has the lease":       {calls: []call{called(sec/2, 2*sec, "a/1")}, want: "begin of call 7"},
		"call that outlives the lease":       {calls: []call{called(4*sec, 11*sec/2, "a/1")}, want: "end of call 7"},
		"call after the release":             {calls: []call{called(11*sec/2, 8*sec, "a/1")}, want: "begin of call 7"},
		"call by the next holder":            {calls: []call{called(7*sec, 8*sec, "b/2")}},
		"call by the former holder":          {calls: []call{called(7*sec, 8*sec, "a/1")}, want: "by a/1"},
		"another process of the holder":      {calls: []call{called(2*sec, 3*sec, "a/9")}, want: "by a/9"},
		"call after the lease has expired":   {calls: []call{called(10*sec, 11*sec, "b/2")}, want: "begin of call 7"},
		"call that ends after the lease has": {calls: []call{called(8*sec, 10*sec, "b/2")}, want: "end of call 7"},
		"write while the lease is taken":     {writes: []write{patched(6*sec, 6*sec+sec/20, "b")}},
		"write while the lease is released":  {writes: []write{patched(5*sec+sec/20, 11*sec/2, "a")}},
		"write by the former holder":         {writes: []write{patched(13*sec/2, 7*sec, "a")}, want: "PATCH"},
		"write by a pod":                     {writes: []write{patched(13*sec/2, 7*sec, "")}},
		"of another driver":                  {writes: []write{{At: 7 * sec, Until: 8 * sec, By: "a", place: place{Driver: "e"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := record{to: 20 * sec, calls: c.calls, writes: c.writes}
			found := judge(turnsOf(leases, r.to), actsOf(r, "d"))
			switch {
			case len(found) > 1:
				t.Errorf("found %d parts, want one at most", len(found))
			case (c.want != "") != (len(found) == 1):
				t.Errorf("found %d parts, want %q", len(found), c.want)
			case c.want != "" && (found[0].result != porcupine.Illegal || !strings.Contains(found[0].first.Text, c.want)):
				t.Errorf("found %s %+v, want %q", found[0].result, found[0].first, c.want)
			}
		})
	}
}

func TestTurnsFollowFromTheWritesOfALease(t *testing.T) {
	for name, c := range map[string]struct {
		writes []write
		want   string
	}{
		"renewed in time":        {[]write{leased(0, "a", 1), leased(2*sec, "a", 2), leased(4*sec, "a", 3)}, "a"},
		"renewed too late":       {[]write{leased(0, "a", 1), leased(4*sec, "a", 2)}, "a,,a"},
		"taken over":             {[]write{leased(0, "a", 1), leased(2*sec, "", 2), leased(5*sec, "b", 3)}, "a,,b"},
		"expired at the end":     {[]write{leased(0, "a", 1)}, "a,"},
		"out of order":           {[]write{leased(4*sec, "b", 3), leased(0, "a", 1), leased(2*sec, "", 2)}, "a,,b"},
		"renewal not answered":   {[]write{leased(0, "a", 1), unanswered(2*sec, "a"), leased(4*sec, "a", 2)}, "a"},
		"takeover has happened":  {[]write{leased(0, "a", 1), unanswered(2*sec, "b"), leased(4*sec, "b", 3)}, "a,b"},
		"takeover has not":       {[]write{leased(0, "a", 1), unanswered(2*sec, "b"), leased(5*sec/2, "a", 2)}, "a"},
		"the next one takes all": {[]write{leased(0, "a", 1), unanswered(1*sec, "b"), leased(2*sec, "c", 3)}, "a,b,c"},
	} {
		t.Run(name, func(t *testing.T) {
			var holders []string
			for _, u := range turnsOf(c.writes, 5*sec) {
				holders = append(holders, u.Holder)
			}
			if got := strings.Join(holders, ","); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// A long history is checked in parts; each begins with what the one before it has left.
func TestALongHistoryIsCutAtQuietPoints(t *testing.T) {
	var leases []write
	var acts []act
	for i := range 400 {
		at := moment(i) * sec
		leases = append(leases, leased(at, fmt.Sprintf("hub/%d", i/30), uint64(i+1)))
		acts = append(acts, act{at + sec/2, at + sec*6/10, fmt.Sprintf("hub/%d", i/30), "act", "v"})
	}
	turns := turnsOf(leases, 400*sec)
	parts := partsOf(turns, acts)
	if len(parts) < 5 {
		t.Errorf("got %d parts", len(parts))
	}
	if found := judge(turns, acts); len(found) > 0 {
		t.Errorf("found %+v", found[0].first)
	}
	acts[300].By = "hub/1"
	acts[350].By = "hub/1"
	found := judge(turns, acts)
	if len(found) != 2 || found[0].first.At != acts[300].At || found[1].first.At != acts[350].At {
		t.Errorf("found %d parts: %+v", len(found), found)
	}
}

func TestAHistoryJoinsTheBeginAndTheEndOfACall(t *testing.T) {
	h, err := openHistory(t.TempDir()+"/h", func(pid int) string { return fmt.Sprintf("hub/%d", pid) })
	if err != nil {
		t.Fatal(err)
	}
	tell := func(kind fakecsi.EventKind, at, deadline moment) {
		h.saw(fakecsi.Event{Kind: kind, Time: h.time(at), Deadline: h.time(deadline), Driver: "d", Volume: "v", Node: "n", Call: 1, Method: publish, Peer: 4})
	}
	tell(fakecsi.CallBegan, 1*sec, 3*sec)
	if calls := h.take().calls; len(calls) != 1 || calls[0].Until != 3*sec || calls[0].Code != "" || calls[0].By != "hub/4" {
		t.Errorf("while it runs: %+v", calls)
	}
	tell(fakecsi.CallEnded, 4*sec, 3*sec)
	// It can do nothing after its deadline.
	if calls := h.take().calls; len(calls) != 1 || calls[0].Until != 3*sec || calls[0].Code != "OK" {
		t.Errorf("after its end: %+v", calls)
	}
	if calls := h.take().calls; len(calls) != 0 {
		t.Errorf("later: %+v", calls)
	}
	if err := h.close(); err != nil {
		t.Error(err)
	}
}
