package safety

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Turn is one state of the register "who may act for a driver": from some moment in [At, Until] on, the holder may act.
type Turn struct {
	At, Until time.Duration
	Holder    string // a process, such as hub0/4711; empty: nobody may act
}

// Act is a call or a write: at some moment in [At, Until] a process acts for a driver.
type Act struct {
	At, Until time.Duration
	By        string // a process, or with its name alone any process of a hub
	Text      string
	About     string // the volume
}

// Holds returns whether somebody may act while a holder holds the lease.
func Holds(by, holder, what string) error {
	if holder == "" || holder != by && !strings.HasPrefix(holder, by+"/") {
		return Holder.broken("", "%s acts, and the lease is held by %q: %s", by, holder, what)
	}
	return nil
}

// Misplaced returns the acts that fit nowhere. The turns are in their order.
//
// It lets each turn begin as late as it can: when its time ends, or when the time of an act ends that needs it. A turn that
// begins later only leaves its predecessors more time, and the acts of its own holder come after it. So the acts that it
// finds misplaced have no place in any order.
func Misplaced(turns []Turn, acts []Act) []Act {
	turns = append([]Turn{{}}, turns...)
	now, left := 0, make([]time.Duration, len(turns)) // the turn that lasts; when each turn before it has ended
	advance := func(to int, at time.Duration) {
		for ; now < to; now++ {
			left[now] = at
		}
	}
	acts = slices.Clone(acts)
	slices.SortStableFunc(acts, func(x, y Act) int { return cmp.Compare(x.Until, y.Until) })
	var found []Act
	for _, a := range acts {
		for i := now + 1; i < len(turns); i++ {
			if turns[i].Until < a.Until {
				advance(i, turns[i].Until)
			}
		}
		fits := false
		for i := 0; i <= now && !fits; i++ {
			fits = (i == now || left[i] >= a.At) && Holds(a.By, turns[i].Holder, "") == nil
		}
		for i := now + 1; i < len(turns) && turns[i].At <= a.Until && !fits; i++ {
			if fits = Holds(a.By, turns[i].Holder, "") == nil; fits {
				advance(i, a.Until)
			}
		}
		if !fits {
			found = append(found, a)
		}
	}
	slices.SortStableFunc(found, func(x, y Act) int { return cmp.Compare(x.Until, y.Until) })
	return found
}

func (a Act) String() string { return fmt.Sprintf("%s by %s", a.Text, a.By) }
