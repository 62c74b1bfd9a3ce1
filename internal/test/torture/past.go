package torture

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/safety"
)

// span is a time in which a storage has a volume attached to a node.
type span struct {
	from, to moment
	foreign  bool // attached without a call
	lost     bool // ended by a fault, not by a call
}

// past answers questions about a history, by place.
type past struct {
	spans  map[place][]span
	calls  map[place][]call         // ended, in the order of their ends
	writes map[place][]write        // of VolumeAttachments and PersistentVolumes
	turns  map[string][]safety.Turn // by driver
	nodes  map[place][]place        // by the place of the volume without a node
	starts []watchStart
	lacks  []lack
}

// pastOf indexes a history.
func pastOf(r record) *past {
	p := &past{map[place][]span{}, map[place][]call{}, map[place][]write{}, map[string][]safety.Turn{}, map[place][]place{}, r.starts, r.lacks}
	for _, c := range r.changes {
		spans := p.spans[c.place]
		if n := len(spans); n > 0 && spans[n-1].to == forEver {
			spans[n-1].to, spans[n-1].lost = c.At, c.Call == 0
		}
		if c.Attached {
			spans = append(spans, span{from: c.At, to: forEver, foreign: c.Foreign})
		}
		whole := place{Driver: c.Driver, Volume: c.Volume}
		if p.spans[c.place] == nil {
			p.nodes[whole] = append(p.nodes[whole], c.place)
		}
		p.spans[c.place] = spans
	}
	for _, c := range r.calls {
		if c.Code != "" {
			p.calls[c.place] = append(p.calls[c.place], c)
		}
	}
	leases := map[string][]write{}
	for _, w := range r.writes {
		if w.Lease != nil {
			leases[w.Driver] = append(leases[w.Driver], w)
		} else if w.Code == 0 || w.Code < 300 && w.Code > 0 {
			p.writes[w.place] = append(p.writes[w.place], w)
		}
	}
	for driver, writes := range leases {
		p.turns[driver] = turnsOf(writes, r.to)
	}
	return p
}

// everFree reports whether the storage did not have a volume at a node by a call at some moment in [from, to]. What the
// storage has attached by itself counts from the first publish that finds it there.
func (p *past) everFree(at place, from, to moment) bool {
	for _, s := range p.spans[at] {
		if s.foreign {
			s.from = p.publishedSince(at, s.from)
		}
		if s.from < from && s.to > to {
			return false
		}
	}
	return true
}

// publishedSince returns when the first publish ended that succeeded at a place and began after a moment.
func (p *past) publishedSince(at place, t moment) moment {
	for _, c := range p.calls[at] {
		if c.Method == publish && c.Code == "OK" && c.At >= t {
			return c.Until
		}
	}
	return forEver
}

// everAttached reports whether the storage had a volume at a node at some moment in [from, to].
func (p *past) everAttached(at place, from, to moment) bool {
	return slices.ContainsFunc(p.spans[at], func(s span) bool { return s.from <= to && s.to >= from })
}

// has says whether the storage had a volume at a node in all of [from, to], or at some moment.
func (p *past) has(at place, from, to moment) safety.Known {
	switch {
	case !p.everFree(at, from, to):
		return safety.Yes
	case p.everAttached(at, from, to):
		return safety.Perhaps
	}
	return safety.No
}

// lostBefore reports whether the last attachment before a moment was ended by a fault.
func (p *past) lostBefore(at place, t moment) bool {
	lost := false
	for _, s := range p.spans[at] {
		if s.to <= t {
			lost = s.lost
		}
	}
	return lost
}

// settled returns the last write of the object at a place before a moment. It returns false if another write of the
// object may have taken effect since.
func (p *past) settled(at place, t moment) (write, bool) {
	var last write
	for _, w := range p.writes[at] {
		if w.known() && w.At <= t && w.follows(last) {
			last = w
		}
	}
	if !last.known() || last.Until >= t || last.Verb == http.MethodDelete {
		return last, false
	}
	for _, w := range p.writes[at] {
		if w.At <= t && w.Until >= last.At && !w.known() {
			return last, false
		}
	}
	return last, true
}

// previous returns the state of an object before a write; false: it is not known.
func (p *past) previous(w write) (write, bool) {
	var last write
	for _, o := range p.writes[w.place] {
		if o.known() && o.UID == w.UID && w.follows(o) && o.follows(last) {
			last = o
		}
	}
	return last, last.known()
}

// happenedSince reports whether the storage has changed or a call was made at the place of a call since a moment, or
// the caller has made a call there at any time before.
func (p *past) happenedSince(c call, from moment) bool {
	return slices.ContainsFunc(p.spans[c.place], func(s span) bool {
		return s.from >= from && s.from <= c.At || s.to >= from && s.to <= c.At
	}) ||
		slices.ContainsFunc(p.calls[c.place], func(o call) bool { return o.ID != c.ID && o.At <= c.At && (o.At >= from || o.By == c.By) })
}

// reconnects is how long after a driver has come back a hub may still write what it knew before.
const reconnects = moment(2e9)

// lacked reports whether a driver did not announce PUBLISH_UNPUBLISH_VOLUME, or hubs may not have known better.
func (p *past) lacked(driver string, from, to moment) bool {
	return slices.ContainsFunc(p.lacks, func(l lack) bool { return l.Driver == driver && l.At <= to && from < max(l.Until, l.Until+reconnects) })
}

// watchedAnew reports whether a hub has begun to watch VolumeAttachments again in [from, to]: it may not have seen
// that an object was deleted before it was gone, and must then expect that nobody has detached its volume.
func (p *past) watchedAnew(hub string, from, to moment) bool {
	return slices.ContainsFunc(p.starts, func(s watchStart) bool { return s.By == hub && s.At >= from && s.At <= to })
}

// termOf returns when the present turn of a process began at the earliest.
func (p *past) termOf(driver, process string, t moment) (moment, bool) {
	began, found := moment(0), false
	for _, u := range p.turns[driver] {
		if u.At <= t {
			began, found = u.At, u.Holder == process
		}
	}
	return began, found
}

// lastBy is where a process has made its last call.
type lastBy struct {
	place
	process string
}

// tail returns what the next part of a history builds on: the last state of everything that still is.
func (r record) tail() record {
	t := record{from: r.from, to: r.to}
	changes, calls, writes := map[place]change{}, map[lastBy]call{}, map[string]write{}
	for _, c := range r.changes {
		changes[c.place] = c
	}
	for _, c := range r.calls {
		if c.Code != "" {
			calls[lastBy{c.place, c.By}] = c
		}
	}
	for _, w := range r.writes {
		if key := cmp.Or(w.UID, w.Object); w.known() && w.follows(writes[key]) {
			writes[key] = w
		}
	}
	for _, c := range changes {
		if c.Attached {
			t.changes = append(t.changes, c)
		}
	}
	for _, c := range calls {
		t.calls = append(t.calls, c)
	}
	slices.SortFunc(t.calls, func(x, y call) int { return cmp.Compare(x.Until, y.Until) })
	for _, w := range writes {
		if !w.Gone {
			t.writes = append(t.writes, w)
		}
	}
	return t
}

// turnsOf returns the turns of one driver in the order of their begins, from the writes of its Lease. A lease that
// was not renewed ends one duration after the last write of its holder. A write without a known outcome counts
// where the next write builds on it, and as a renewal.
func turnsOf(writes []write, to moment) []safety.Turn {
	known := slices.DeleteFunc(slices.Clone(writes), func(w write) bool { return !w.known() })
	slices.SortFunc(known, func(x, y write) int { return cmp.Compare(x.Version, y.Version) })
	var turns []safety.Turn
	begin := func(t safety.Turn) {
		if n := len(turns); n == 0 || turns[n-1].Holder != t.Holder {
			turns = append(turns, t)
		}
	}
	for i, w := range known {
		begin(safety.Turn{At: w.At, Until: w.Until, Holder: w.Lease.Holder})
		next := write{At: to, Lease: &leaseWrite{BasedOn: w.Version}}
		if i+1 < len(known) {
			next = known[i+1]
		}
		last := w
		for _, u := range writes {
			if u.known() || u.At < w.At || u.At > next.At {
				continue
			}
			switch {
			case u.Lease.Holder == last.Lease.Holder:
				last = u
			case next.Lease.BasedOn != w.Version && next.At < to:
				begin(safety.Turn{At: u.At, Until: next.At, Holder: u.Lease.Holder})
				last = u
			}
		}
		if d := last.Lease.Duration; last.Lease.Holder != "" && next.At > last.Until+d {
			begin(safety.Turn{At: w.At + d, Until: last.Until + d, Holder: ""})
		}
	}
	return turns
}
