package queue_test

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

// justBefore stands for a call that was let to the driver just before it became due again.
const justBefore = ^uint64(0)

// conflict reports whether two calls may not be in flight together.
func conflict(a, b queue.Call, parallel bool) bool {
	return !parallel || !a.Shared || !b.Shared || a.Target.NodeID == b.Target.NodeID
}

// goesFirst reports whether an unpublish goes before a publish, whatever the order is.
func goesFirst(detach, c queue.Call) bool {
	tried := detach.State != queue.InFlight && detach.Tried > c.Came
	return detach.Detach && detach.State != queue.BacksOff && !tried && !c.Detach && !c.Shared && !(detach.Dangling && detach.Target == c.Target)
}

// before reports whether a call is to start before another one, both being due.
func before(calls []queue.Call, a, b int) bool {
	turn := func(c queue.Call) uint64 {
		if c.Detach {
			return max(c.Served, c.Tried)
		}
		return c.Came
	}
	return cmp.Or(cmp.Compare(turn(calls[a]), turn(calls[b])), cmp.Compare(calls[a].Came, calls[b].Came)) < 0
}

// checkNext returns what is wrong with what Next says, "" for nothing.
func checkNext(calls []queue.Call, parallel bool) string {
	input := slices.Clone(calls)
	verdicts := queue.Next(calls, parallel)
	if !slices.Equal(input, calls) {
		return "the input has changed"
	}
	if len(verdicts) != len(calls) {
		return "there is not one verdict per call"
	}
	due, starts, stopped := false, false, false
	for i, c := range calls {
		due = due || c.State == queue.Due
		starts = starts || verdicts[i].Start
		stopped = stopped || c.State == queue.InFlight || c.State == queue.Pauses
	}
	if due && !starts && !stopped {
		return "nothing is in flight or paused, and nothing starts"
	}
	for i := range calls {
		if fault := checkVerdict(calls, verdicts, i, parallel); fault != "" {
			return fmt.Sprintf("call %d: %s", i, fault)
		}
	}
	if !sameForOtherOrders(calls, verdicts, parallel) {
		return "the answer depends on the order of the input"
	}
	if !sameWithoutBackoffs(calls, verdicts, parallel) {
		return "what backs off makes a difference"
	}
	return ""
}

// checkVerdict returns what is wrong with one verdict.
func checkVerdict(calls []queue.Call, verdicts []queue.Verdict, i int, parallel bool) string {
	c, v := calls[i], verdicts[i]
	some := func(f func(j int) bool) bool {
		for j := range calls {
			if j != i && f(j) {
				return true
			}
		}
		return false
	}
	busy := func(j int) bool { return calls[j].State == queue.InFlight || verdicts[j].Start }
	isBefore := func(j int) bool { return calls[j].State == queue.Due && before(calls, j, i) }
	exclusive := func(j int) bool { return verdicts[j].Wait == queue.WaitVolume && !calls[j].Shared }
	waitsFor := func(j int) bool { return goesFirst(calls[j], c) }
	switch {
	case c.State != queue.Due:
		if v != (queue.Verdict{}) {
			return "it is not due, and there is a verdict"
		}
	case v.Start && some(func(j int) bool { return busy(j) && conflict(c, calls[j], parallel) }):
		return "it starts beside one that it conflicts with"
	case v.Start && some(waitsFor):
		return "it starts before a detach that goes first"
	case v.Start && some(func(j int) bool { return isBefore(j) && !verdicts[j].Start && exclusive(j) }):
		return "it overtakes one that needs the volume for itself"
	case v.Start && some(func(j int) bool {
		return isBefore(j) && !verdicts[j].Start && verdicts[j].Wait == queue.WaitVolume && conflict(c, calls[j], parallel) &&
			!slices.ContainsFunc(calls, func(o queue.Call) bool { return o.State == queue.InFlight && conflict(o, calls[j], parallel) })
	}):
		return "it starts before one whose turn it is"
	case v.Start:
	case v.Wait == queue.WaitDetach:
		if !some(func(j int) bool { return j == v.After && waitsFor(j) }) {
			return "it waits for what does not go first"
		}
	case v.Wait != queue.WaitVolume:
		return "it waits for nothing"
	case some(waitsFor):
		return "it waits for a detach, and says that it waits for its volume"
	case !some(func(j int) bool {
		return calls[j].State == queue.InFlight && conflict(c, calls[j], parallel) ||
			isBefore(j) && (verdicts[j].Start && conflict(c, calls[j], parallel) || exclusive(j))
	}):
		return "it waits for no reason"
	}
	return ""
}

// sameForOtherOrders reports whether the verdicts are the same for the calls in another order, except
// for which of several detaches a call waits for.
func sameForOtherOrders(calls []queue.Call, verdicts []queue.Verdict, parallel bool) bool {
	backward := slices.Clone(calls)
	slices.Reverse(backward)
	reversed := queue.Next(backward, parallel)
	slices.Reverse(reversed)
	rotated := queue.Next(append(slices.Clone(calls[1:]), calls[0]), parallel)
	rotated = append(rotated[len(rotated)-1:], rotated[:len(rotated)-1]...)
	for i, v := range verdicts {
		for _, other := range []queue.Verdict{reversed[i], rotated[i]} {
			if other.Start != v.Start || other.Wait != v.Wait {
				return false
			}
		}
	}
	return true
}

// sameWithoutBackoffs reports whether the verdicts are the same without the calls that back off.
func sameWithoutBackoffs(calls []queue.Call, verdicts []queue.Verdict, parallel bool) bool {
	var rest []queue.Call
	var want []queue.Verdict
	for i, c := range calls {
		if c.State != queue.BacksOff {
			rest, want = append(rest, c), append(want, verdicts[i])
		}
	}
	for i, v := range queue.Next(rest, parallel) {
		if v.Start != want[i].Start || v.Wait != want[i].Wait {
			return false
		}
	}
	return true
}
