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
	lost     bool // ended by a fault, not by a call
}

// past answers questions about a history, by place.
type past struct {
	spans  map[place][]span
	calls  map[place][]call  // ended, in the order of their ends
	writes map[place][]write // of VolumeAttachments and PersistentVolumes, that may have taken effect
	nodes  map[place][]place // by the place of the volume without a node
}

// pastOf indexes a history.
func pastOf(r record) *past {
	p := &past{map[place][]span{}, map[place][]call{}, map[place][]write{}, map[place][]place{}}
	for _, c := range r.changes {
		spans := p.spans[c.place]
		if n := len(spans); n > 0 && spans[n-1].to == forEver {
			spans[n-1].to, spans[n-1].lost = c.At, c.Call == 0
		}
		if c.Attached {
			spans = append(spans, span{from: c.At, to: forEver})
		}
		if p.spans[c.place] == nil {
			whole := place{Driver: c.Driver, Volume: c.Volume}
			p.nodes[whole] = append(p.nodes[whole], c.place)
		}
		p.spans[c.place] = spans
	}
	for _, c := range r.calls {
		if c.Code != "" {
			p.calls[c.place] = append(p.calls[c.place], c)
		}
	}
	for _, w := range r.writes {
		if w.Lease == nil && w.Code < 300 {
			p.writes[w.place] = append(p.writes[w.place], w)
		}
	}
	return p
}

// has says whether the storage had a volume at a node in all of [from, to], or at some moment.
func (p *past) has(at place, from, to moment) safety.Known {
	has := safety.No
	for _, s := range p.spans[at] {
		switch {
		case s.from < from && s.to > to:
			return safety.Yes
		case s.from <= to && s.to >= from:
			has = safety.Perhaps
		}
	}
	return has
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

// turnsOf returns the turns of a driver in the order of their begins, from the writes of its Lease. A lease that
// was not renewed ends one duration after the last write of its holder. A write without a known outcome counts
// where the next write builds on it, and as a renewal.
func turnsOf(r record, driver string) []safety.Turn {
	writes := slices.DeleteFunc(slices.Clone(r.writes), func(w write) bool { return w.Lease == nil || w.Driver != driver })
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
		next := write{At: r.to, Lease: &leaseWrite{BasedOn: w.Version}}
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
			case next.Lease.BasedOn != w.Version && next.At < r.to:
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
