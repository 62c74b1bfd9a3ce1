package chaos

import (
	"cmp"
	"slices"
	"strings"
)

// turn is one state of the register "who may act for a driver": from some moment in [At, Until] on, the holder may
// act. No holder: nobody may.
type turn struct {
	At, Until moment
	Holder    string
}

// turnsOf returns the turns of one driver in the order of their begins, from the writes of its Lease. A lease that
// was not renewed ends one duration after the last write of its holder. A write without a known outcome counts
// where the next write builds on it, and as a renewal.
func turnsOf(writes []write, to moment) []turn {
	known := slices.DeleteFunc(slices.Clone(writes), func(w write) bool { return !w.known() })
	slices.SortFunc(known, func(x, y write) int { return cmp.Compare(x.Version, y.Version) })
	var turns []turn
	begin := func(t turn) {
		if n := len(turns); n == 0 || turns[n-1].Holder != t.Holder {
			turns = append(turns, t)
		}
	}
	for i, w := range known {
		begin(turn{w.At, w.Until, w.Lease.Holder})
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
				begin(turn{u.At, next.At, u.Lease.Holder})
				last = u
			}
		}
		if d := last.Lease.Duration; last.Lease.Holder != "" && next.At > last.Until+d {
			begin(turn{w.At + d, last.Until + d, ""})
		}
	}
	return turns
}

// mayBe reports whether an act by a process, or by any process of a hub, may be one of the holder.
func mayBe(holder, by string) bool {
	return holder != "" && (holder == by || strings.HasPrefix(holder, by+"/"))
}
