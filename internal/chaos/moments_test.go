package chaos

import (
	"strings"
	"testing"
)

// scene is a short history of volume v of driver d on nodes n and m.
type scene struct{ record }

func (h *scene) call(at, until moment, node string, c call) *scene {
	c.At, c.Until, c.place = at, until, place{"d", "v", node}
	h.calls = append(h.calls, c)
	return h
}

func (h *scene) storage(at moment, node string, attached bool, call uint64) *scene {
	h.changes = append(h.changes, change{At: at, place: place{"d", "v", node}, Attached: attached, Foreign: attached && call == 0, Call: call})
	return h
}

// write adds a write that is answered after 100 ms. Its version is the next one.
func (h *scene) write(at moment, node string, w write) *scene {
	w.At, w.Until, w.place, w.Code = at, at+sec/10, place{"d", "v", node}, 200
	w.Version, w.UID, w.Object = uint64(len(h.writes)+1), "uid-"+node, "object-"+node
	h.writes = append(h.writes, w)
	return h
}

func (h *scene) lease(at moment, holder string) *scene {
	h.writes = append(h.writes, leased(at, holder, uint64(len(h.writes)+1)))
	return h
}

func (h *scene) watch(at moment, by string) *scene {
	h.starts = append(h.starts, watchStart{at, by})
	return h
}

// finished is a history in which hub a has attached the volume and has finished with it by 7 s.
func finished() *scene {
	h := attached().write(4*sec, "n", write{Guarded: true, Attached: true, Deleting: true})
	h.call(5*sec, 6*sec, "n", call{ID: 8, Method: unpublish, By: "a/1", Code: "OK"}).storage(11*sec/2, "n", false, 8)
	return h.write(7*sec, "n", write{By: "a", Attached: true, Deleting: true, Gone: true})
}

// wantedAgain is such a history, after which a pod has asked for the volume there again.
func wantedAgain() *scene { return finished().write(15*sec/2, "n", write{Verb: "POST"}) }

// attached is a history in which hub a has attached the volume to node n by 3 s.
func attached() *scene {
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
	onTwoNodes, refused, later := ok, detach, ok                           // calls
	onTwoNodes.Shared, refused.Code, later.By = true, "Internal", "b/2"    //
	cut, laterDetach := refused, detach
	cut.Code = "Unavailable"
	laterDetach.By, laterDetach.ID = "b/2", 11
	before := laterDetach
	before.ID = 10
	detached := func(h *scene, at moment) *scene {
		return h.call(at, at+sec, "n", detach).storage(at+sec/2, "n", false, 8)
	}
	for name, c := range map[string]struct {
		history *scene
		want    string // empty: nothing
	}{
		"attached and detached": {detached(attached().write(4*sec, "n", asked), 5*sec).write(7*sec, "n", released), ""},

		"published elsewhere while attached":        {attached().call(5*sec, 6*sec, "m", ok), "publishes it on m, while it is attached to n"},
		"published elsewhere after the detach":      {detached(attached().write(4*sec, "n", asked), 5*sec).call(7*sec, 8*sec, "m", ok), ""},
		"published elsewhere during the detach":     {detached(attached().write(4*sec, "n", asked), 5*sec).call(21*sec/4, 8*sec, "m", ok), "while it is attached to n"},
		"published elsewhere where detach failed":   {attached().call(4*sec, 5*sec, "n", refused).call(7*sec, 8*sec, "m", ok), ""},
		"published elsewhere where detach was cut":  {attached().call(4*sec, 5*sec, "n", cut).call(7*sec, 8*sec, "m", ok), "while it is attached to n"},
		"published for many nodes":                  {attached().call(5*sec, 6*sec, "m", onTwoNodes), ""},
		"attached elsewhere by the storage itself":  {(&scene{}).storage(1*sec, "n", true, 0).call(5*sec, 6*sec, "m", ok), ""},
		"attached by the storage, then by a hub":    {(&scene{}).storage(1*sec, "n", true, 0).call(2*sec, 3*sec, "n", ok).call(5*sec, 6*sec, "m", ok), "while it is attached to n"},
		"published again by the process itself":     {attached().call(5*sec, 6*sec, "n", ok), ""},
		"published again after a takeover":          {attached().lease(5*sec, "b/2").call(6*sec, 7*sec, "n", later), "publishes it on n again"},
		"published again after a loss":              {attached().storage(4*sec, "n", false, 0).lease(5*sec, "b/2").call(6*sec, 7*sec, "n", later), ""},
		"published again, finalizer taken":          {attached().write(4*sec, "n", write{Attached: true}).lease(5*sec, "b/2").call(6*sec, 7*sec, "n", later), ""},
		"published again, status only just written": {attached().lease(3*sec+sec/20, "b/2").call(6*sec, 7*sec, "n", later), ""},

		"repeated after a takeover":                  {finished().lease(8*sec, "b/2").call(9*sec, 10*sec, "n", laterDetach), "though a had finished with object-n"},
		"repeated for a volume that is wanted again": {wantedAgain().lease(8*sec, "b/2").call(9*sec, 10*sec, "n", laterDetach), "though a had finished with object-n"},
		"attached for a volume that is wanted again": {wantedAgain().lease(8*sec, "b/2").call(9*sec, 10*sec, "n", later), ""},
		"repeated, and attached again after that":    {finished().lease(8*sec, "b/2").call(9*sec, 10*sec, "n", laterDetach).storage(31*sec/2, "n", true, 12), "though a had finished with object-n"},
		"repeated by who has worked on it":           {finished().lease(8*sec, "b/2").call(sec/2, sec, "n", before).call(9*sec, 10*sec, "n", laterDetach), ""},
		"repeated after a gap of the watch":          {finished().lease(8*sec, "b/2").watch(17*sec/2, "b").call(9*sec, 10*sec, "n", laterDetach), ""},

		"reported before the storage has it": {(&scene{}).write(1*sec, "n", write{By: "a", Guarded: true}).write(2*sec, "n", write{By: "a", Guarded: true, Attached: true}).storage(3*sec, "n", true, 1),
			"as attached, and the storage does not have it"},
		"reported by a driver that attaches nothing": {func() *scene {
			h := (&scene{}).write(2*sec, "n", write{By: "a", Guarded: true, Attached: true})
			h.lacks = []lack{{sec, 3 * sec, "d"}}
			return h
		}(), ""},
		"reported after a loss":              {(&scene{}).storage(0, "n", true, 1).storage(1*sec, "n", false, 0).write(2*sec, "n", write{By: "a", Guarded: true, Attached: true}), ""},
		"reported as detached":               {attached().write(5*sec, "n", write{By: "a", Guarded: true}), "as detached, while it is attached"},
		"reported as detached after that":    {detached(attached().write(4*sec, "n", asked), 5*sec).write(7*sec, "n", write{By: "a", Guarded: true, Deleting: true}), ""},
		"finalizer goes before the detach":   {detached(attached().write(4*sec, "n", asked).write(9*sec/2, "n", released), 5*sec), "removes the finalizer of object-n"},
		"finalizer goes without a deletion":  {attached().write(5*sec, "n", write{By: "a", Attached: true}), "removes the finalizer of object-n"},
		"finalizer is taken by a user":       {attached().write(5*sec, "n", write{Attached: true}), ""},
		"finalizer of the volume goes early": {attached().write(5*sec, "", write{By: "a", Deleting: true, Gone: true}), "while it is attached to n"},
		"finalizer of the volume goes":       {detached(attached().write(4*sec, "n", asked), 5*sec).write(7*sec, "", write{By: "a", Deleting: true, Gone: true}), ""},

		"detached though it is wanted":      {detached(attached(), 5*sec), "reports it as attached and is not being deleted"},
		"detached by the storage itself":    {attached().storage(5*sec, "n", false, 0), ""},
		"detached as the deletion comes in": {detached(attached().write(5*sec+sec/4, "n", asked), 5*sec), ""},
		"detached, outcome of a write not known": {func() *scene {
			h := detached(attached(), 5*sec)
			h.writes = append(h.writes, write{At: 4 * sec, Until: 9 * sec / 2, place: place{"d", "v", "n"}})
			return h
		}(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			found := moments(record{}, c.history.record)
			if c.want == "" && len(found) > 0 {
				t.Errorf("found %+v, want nothing", found)
			}
			if c.want != "" && (len(found) != 1 || !strings.Contains(found[0].text, c.want)) {
				t.Errorf("found %+v, want %q", found, c.want)
			}
		})
	}
}

// A run is checked at each quiet, and then forgets all but what the next check needs.
func TestTheNextCheckKnowsWhatIsStillAttached(t *testing.T) {
	before := attached()
	tail := before.tail()
	if len(tail.changes) != 1 || len(tail.writes) != 2 || len(tail.calls) != 1 {
		t.Errorf("the tail is %+v", tail)
	}
	next := scene{record{from: 20 * sec, to: 40 * sec}}
	next.writes = before.writes // for the versions
	next.write(25*sec, "n", write{By: "a", Guarded: true})
	next.writes = next.writes[len(before.writes):]
	if found := moments(tail, next.record); len(found) != 1 || !strings.Contains(found[0].text, "as detached") {
		t.Errorf("found %+v", found)
	}
}
