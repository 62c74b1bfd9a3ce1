package queue

import (
	"cmp"
	"math"
	"slices"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// CallState is the state of a call.
type CallState int8

const (
	Due      CallState = iota // it wants to start
	InFlight                  // a worker has it
	Pauses                    // it starts soon again, without having failed
	BacksOff                  // it has failed, and starts again later
	Held                      // it wants to start, and its node is full
)

// Call is an item as Next needs it: a plain value.
type Call struct {
	Target attach.Target
	// Shared: calls for the volume at other node IDs may be in flight at the same time.
	Shared  bool
	Detach  bool
	Unowned bool // the detach of an unowned publication
	State   CallState
	// Came, Served and Tried order calls: when the call last became due, when it last got to call the driver, and when a try
	// of it last failed.
	Came, Served, Tried uint64
}

// Verdict is what Next decides about a call that is due or held.
type Verdict struct {
	Start bool
	Wait  WaitKind // what it waits for, if it may not start
	After int      // for WaitDetach: the index of the detach that goes first
}

// Next decides which calls for one volume may start now, and returns a verdict for each call. It is
// pure. parallel is the setting parallelMultiNode. The rules:
//
//   - One call for a volume at a time (CSI spec). Calls for a multi-node volume at different node
//     IDs may be in flight together, with parallel.
//   - A publish of a single-node volume does not start while an unpublish elsewhere is due, in
//     flight or paused. No publish waits for an unpublish that backs off, nor for one of which a try
//     has failed since the publish became due: the driver decides then.
//   - Detaches go first, then the longest waiting. A detach that has started, or of which a try has
//     failed, since the longest waiting call became due does not go before that call once more.
//   - Nothing overtakes a call that needs the volume for itself.
//   - A call that is held may start by these rules or not, after all others. It makes no difference to others.
func Next(calls []Call, parallel bool) []Verdict {
	verdicts := make([]Verdict, len(calls))
	var together callSet
	for _, c := range calls {
		if c.State == InFlight {
			together.add(c)
		}
	}
	detaches := detachesThatGoFirst(calls)
	exclusive := false // a call that needs the volume for itself waits
	for _, i := range inOrder(calls) {
		if first := detachFirst(calls, detaches, i); first >= 0 {
			verdicts[i] = Verdict{Wait: WaitDetach, After: first}
			continue
		}
		counts := calls[i].State == Due
		if !exclusive && together.fits(calls[i], parallel) {
			verdicts[i] = Verdict{Start: true}
			if counts {
				together.add(calls[i])
			}
			continue
		}
		verdicts[i] = Verdict{Wait: WaitVolume}
		exclusive = exclusive || counts && !calls[i].Shared
	}
	return verdicts
}

// inOrder returns the calls that are due in the order in which they may start, and then those that are held.
func inOrder(calls []Call) []int {
	var order []int
	oldest := uint64(math.MaxUint64)
	for i, c := range calls {
		if c.State == Due || c.State == Held {
			order = append(order, i)
		}
		if c.State == Due {
			oldest = min(oldest, c.Came)
		}
	}
	rank := func(c Call) int {
		switch {
		case c.State == Held:
			return 2
		case c.Detach && max(c.Served, c.Tried) < oldest:
			return 0
		}
		return 1
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(rank(calls[a]), rank(calls[b])), cmp.Compare(calls[a].Came, calls[b].Came))
	})
	return order
}

// callSet is a set of calls that are or may be in flight together.
type callSet struct {
	exclusive bool            // one of the calls needs the volume for itself
	nodes     map[string]bool // node IDs of the others
}

func (f *callSet) add(c Call) {
	if f.nodes == nil && c.Shared {
		f.nodes = map[string]bool{}
	}
	if c.Shared {
		f.nodes[c.Target.NodeID] = true
	} else {
		f.exclusive = true
	}
}

func (f *callSet) fits(c Call, parallel bool) bool {
	return !f.exclusive && (len(f.nodes) == 0 || parallel && c.Shared && !f.nodes[c.Target.NodeID])
}

// detachesThatGoFirst returns the indexes of the detaches before which no publish elsewhere starts.
func detachesThatGoFirst(calls []Call) []int {
	var all []int
	for i, c := range calls {
		if c.Detach && c.State != BacksOff {
			all = append(all, i)
		}
	}
	return all
}

// detachFirst returns the index of the first of the detaches that goes before a call, -1 if none does.
func detachFirst(calls []Call, detaches []int, i int) int {
	c := calls[i]
	if c.Detach || c.Shared {
		return -1
	}
	for _, d := range detaches {
		if goesFirst(calls[d], c) {
			return d
		}
	}
	return -1
}

// goesFirst reports whether a detach goes before a publish. The detach of an unowned publication at the target of the
// publish does not: the publish takes that publication over. Nor does a detach that has had its try: of two that time out,
// one is always due while the other one backs off.
func goesFirst(detach, publish Call) bool {
	tookOver := detach.Unowned && detach.Target == publish.Target
	tried := detach.State != InFlight && detach.Tried > publish.Came
	return !tookOver && !tried
}
