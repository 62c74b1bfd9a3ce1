package torture

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
)

const sec = time.Second

// scene is a short history of volume v of driver d on nodes n and m.
type scene struct{ record }

func (h *scene) call(at, until moment, node string, c call) *scene {
	c.At, c.Until, c.place = at, until, place{Driver: "d", Volume: "v", Node: node}
	h.calls = append(h.calls, c)
	return h
}

func (h *scene) storage(at moment, node string, attached bool, call uint64) *scene {
	h.changes = append(h.changes, change{At: at, place: place{Driver: "d", Volume: "v", Node: node}, Attached: attached, Call: call})
	return h
}

// write adds a write that is answered after 100 ms. Its version is the next one.
func (h *scene) write(at moment, node string, w write) *scene {
	w.At, w.Until, w.place, w.Code = at, at+sec/10, place{Driver: "d", Volume: "v", Node: node}, 200
	w.Version, w.UID, w.Object = uint64(len(h.writes)+1), "uid-"+node, cmp.Or(w.Object, "object-"+node+"/status")
	h.writes = append(h.writes, w)
	return h
}

func (h *scene) lease(at moment, holder string) *scene {
	h.writes = append(h.writes, leased(at, holder, uint64(len(h.writes)+1)))
	return h
}

// takeover lets b/2 take over at a moment.
func (h *scene) takeover(at moment) *scene {
	h.record.takeover = at
	return h.lease(at, "b/2")
}

// finished is a history in which hub a has attached the volume and has finished with it by 7 s.
func finished() *scene {
	h := reported().write(4*sec, "n", write{Guarded: true, Attached: true, Deleting: true})
	h.call(5*sec, 6*sec, "n", call{ID: 8, Method: unpublish, By: "a/1", Code: "OK"}).storage(11*sec/2, "n", false, 8)
	return h.write(7*sec, "n", write{By: "a", Attached: true, Deleting: true, Gone: true})
}

// reported is a history in which hub a has attached the volume to node n by 3 s.
func reported() *scene {
	h := &scene{record{to: 20 * sec}}
	h.lease(0, "a/1")
	h.write(1*sec, "n", write{By: "a", Guarded: true})
	h.call(2*sec, 5*sec/2, "n", call{ID: 1, Method: publish, By: "a/1", Code: "OK"}).storage(9*sec/4, "n", true, 1)
	return h.write(3*sec, "n", write{By: "a", Guarded: true, Attached: true})
}

func TestTheRulesHoldAtEachMoment(t *testing.T) {
	ok := call{ID: 9, Method: publish, By: "a/1", Code: "OK"}
	detach := call{ID: 8, Method: unpublish, By: "a/1", Code: "OK"}
	asked := write{Guarded: true, Attached: true, Deleting: true}          // by a pod
	released := write{By: "a", Attached: true, Deleting: true, Gone: true} // by the hub
	later, laterDetach := ok, detach
	later.By, laterDetach.By, laterDetach.ID = "b/2", "b/2", 11
	before := laterDetach
	before.ID = 10
	detached := func(h *scene, at moment) *scene {
		return h.call(at, at+sec, "n", detach).storage(at+sec/2, "n", false, 8)
	}
	for name, c := range map[string]struct {
		history *scene
		want    string // empty: nothing
	}{
		"attached and detached": {detached(reported().write(4*sec, "n", asked), 5*sec).write(7*sec, "n", released), ""},

		"published again by the process itself":     {reported().call(5*sec, 6*sec, "n", ok), ""},
		"published again after a takeover":          {reported().takeover(5*sec).call(6*sec, 7*sec, "n", later), "has recorded it as attached"},
		"published again after a loss":              {reported().storage(4*sec, "n", false, 0).takeover(5*sec).call(6*sec, 7*sec, "n", later), ""},
		"published again, finalizer taken":          {reported().write(4*sec, "n", write{Attached: true}).takeover(5*sec).call(6*sec, 7*sec, "n", later), ""},
		"published again, status only just written": {reported().takeover(3*sec+sec/20).call(6*sec, 7*sec, "n", later), ""},

		"repeated after a takeover":               {finished().takeover(8*sec).call(9*sec, 10*sec, "n", laterDetach), "the VolumeAttachment is gone"},
		"repeated, and attached again after that": {finished().takeover(8*sec).call(9*sec, 10*sec, "n", laterDetach).storage(31*sec/2, "n", true, 12), "the VolumeAttachment is gone"},
		"repeated by who has worked on it":        {finished().takeover(8*sec).call(sec/2, sec, "n", before).call(9*sec, 10*sec, "n", laterDetach), ""},

		"reported before the storage has it": {(&scene{}).write(1*sec, "n", write{By: "a", Guarded: true}).write(2*sec, "n", write{By: "a", Guarded: true, Attached: true}).storage(3*sec, "n", true, 1),
			"as attached, and the driver does not have v at n"},
		"reported after a loss": {(&scene{}).storage(0, "n", true, 1).storage(1*sec, "n", false, 0).write(2*sec, "n", write{By: "a", Guarded: true, Attached: true}), ""},
		"reported by a write without an answer, and detached": {func() *scene {
			h := detached((&scene{}).storage(0, "n", true, 1).write(1*sec, "n", write{By: "a", Guarded: true}), 5*sec)
			h.writes = append(h.writes, write{By: "a", At: 2 * sec, Until: 3 * sec, place: place{Driver: "d", Volume: "v", Node: "n"}})
			release := released
			release.Object = "object-n"
			return h.write(4*sec, "n", write{Deleting: true, Guarded: true}).write(7*sec, "n", release)
		}(), ""},
		"reported as detached":               {reported().write(5*sec, "n", write{By: "a", Guarded: true}), "as detached, while the driver has v at n"},
		"reported as detached after that":    {detached(reported().write(4*sec, "n", asked), 5*sec).write(7*sec, "n", write{By: "a", Guarded: true, Deleting: true}), ""},
		"finalizer goes before the detach":   {detached(reported().write(4*sec, "n", asked).write(9*sec/2, "n", released), 5*sec), "removes the finalizer of object-n"},
		"finalizer goes without a deletion":  {reported().write(5*sec, "n", write{By: "a", Attached: true}), "removes the finalizer of object-n"},
		"finalizer is taken by a user":       {reported().write(5*sec, "n", write{Attached: true}), ""},
		"finalizer of the volume goes early": {reported().write(5*sec, "", write{By: "a", Deleting: true, Gone: true}), "while the driver has v at n"},
		"finalizer of the volume goes":       {detached(reported().write(4*sec, "n", asked), 5*sec).write(7*sec, "", write{By: "a", Deleting: true, Gone: true}), ""},

		"detached though it is wanted":      {detached(reported(), 5*sec), "reports it as attached and is not being deleted"},
		"detached by the storage itself":    {reported().storage(5*sec, "n", false, 0), ""},
		"detached as the deletion comes in": {detached(reported().write(5*sec+sec/4, "n", asked), 5*sec), ""},
		"detached, outcome of a write not known": {func() *scene {
			h := detached(reported(), 5*sec)
			h.writes = append(h.writes, write{At: 4 * sec, Until: 9 * sec / 2, place: place{Driver: "d", Volume: "v", Node: "n"}})
			return h
		}(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			found := moments(c.history.record)
			if c.want == "" && len(found) > 0 {
				t.Errorf("found %+v, want nothing", found)
			}
			if c.want != "" && (len(found) != 1 || !strings.Contains(found[0].Text, c.want)) {
				t.Errorf("found %+v, want %q", found, c.want)
			}
		})
	}
}

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
	return call{At: at, Until: until, ID: 7, Method: publish, By: by, place: place{Driver: "d", Volume: "v", Node: "n"}, Code: "OK"}
}

func patched(at, until moment, by string) write {
	return write{At: at, Until: until, By: by, Verb: "PATCH", place: place{Driver: "d", Volume: "v", Node: "n"}, Code: 409}
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
			found := acts(record{to: 20 * sec, calls: c.calls, writes: slices.Concat(leases, c.writes)})
			found = slices.DeleteFunc(found, func(f Finding) bool { return f.About == "e" })
			if (c.want != "") != (len(found) > 0) || c.want != "" && !strings.Contains(found[0].Text, c.want) {
				t.Errorf("found %+v, want %q", found, c.want)
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
			for _, u := range turnsOf(record{to: 5 * sec, writes: c.writes}, "d") {
				holders = append(holders, u.Holder)
			}
			if got := strings.Join(holders, ","); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestAHistoryJoinsTheBeginAndTheEndOfACall(t *testing.T) {
	h := newHistory()
	h.named("hub", 4)
	tell := func(kind fakecsi.EventKind, at, deadline moment) {
		h.saw(fakecsi.Event{Kind: kind, Time: h.began.Add(at), Deadline: h.began.Add(deadline), Driver: "d", Volume: "v", Node: "n", Call: 1, Method: publish, Peer: 4})
	}
	tell(fakecsi.CallBegan, 1*sec, 3*sec)
	if calls := h.record().calls; len(calls) != 1 || calls[0].Until != 3*sec || calls[0].Code != "" || calls[0].By != "hub/4" {
		t.Errorf("while it runs: %+v", calls)
	}
	tell(fakecsi.CallEnded, 4*sec, 3*sec)
	// It can do nothing after its deadline.
	if calls := h.record().calls; len(calls) != 1 || calls[0].Until != 3*sec || calls[0].Code != "OK" {
		t.Errorf("after its end: %+v", calls)
	}
}
