package chaos

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// act is a call or a write of a hub: at a moment in [At, Until] its process acts for a driver.
type act struct {
	At, Until moment
	By        string // a process, or a hub
	Text      string
	about     string // the volume
}

// actsOf returns the acts for a driver. A call acts when it begins and when it ends, since the storage may change
// until its end. A call whose deadline does not fit into a lease is protected at its begin only, but a run has no
// such call.
func actsOf(r record, driver string) []act {
	var acts []act
	for _, c := range r.calls {
		if c.Driver != driver || c.At < r.from {
			continue
		}
		text := fmt.Sprintf("call %d, %s of %s on %s by %s", c.ID, c.Method, c.Volume, c.Node, c.By)
		acts = append(acts, act{c.At, c.At, c.By, "begin of " + text, c.Volume})
		if c.Until != forEver {
			acts = append(acts, act{c.Until, c.Until, c.By, "end of " + text, c.Volume})
		}
	}
	for _, w := range r.writes {
		if w.Driver == driver && w.By != "" && w.Lease == nil {
			acts = append(acts, act{w.At, w.Until, w.By, fmt.Sprintf("%s of %s by %s", w.Verb, w.Object, w.By), w.Volume})
		}
	}
	return acts
}

// registerOp is the input of an operation for porcupine: the turn of that number begins, or somebody acts.
type registerOp struct {
	turn turn
	next int // number of the turn, from 1; 0: an act
	act  act
}

// registerState is the state of the register.
type registerState struct {
	turn   int
	holder string
}

// register returns the model "who may act for a driver", from a state on: turns begin in their order, and only the
// holder acts.
func register(from registerState) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return from },
		Step: func(state, input, _ any) (bool, any) {
			s, op := state.(registerState), input.(registerOp)
			if op.next == 0 {
				return mayBe(s.holder, op.act.By), s
			}
			return op.next == s.turn+1, registerState{op.next, op.turn.Holder}
		},
		DescribeOperation: func(input, _ any) string {
			op := input.(registerOp)
			switch {
			case op.next == 0:
				return op.act.Text
			case op.turn.Holder == "":
				return "nobody holds the lease"
			}
			return op.turn.Holder + " holds the lease"
		},
		DescribeState: func(state any) string { return cmp.Or(state.(registerState).holder, "nobody") },
	}
}

const (
	// partMin is how many operations a part has at least.
	partMin = 60
	// decideTime bounds the check of one part.
	decideTime = 10 * time.Second
)

// partsOf cuts the operations of a driver at quiet points: moments at which none is under way. At such a point the
// state of the register is known, so that each part can be checked alone.
func partsOf(turns []turn, acts []act) [][]porcupine.Operation {
	var ops []porcupine.Operation
	clients := map[string]int{"": 0}
	for i, t := range turns {
		ops = append(ops, porcupine.Operation{Input: registerOp{turn: t, next: i + 1}, Call: int64(t.At), Return: int64(max(t.At, t.Until))})
	}
	for _, a := range acts {
		if _, ok := clients[a.By]; !ok {
			clients[a.By] = len(clients)
		}
		ops = append(ops, porcupine.Operation{ClientId: clients[a.By], Input: registerOp{act: a}, Call: int64(a.At), Return: int64(max(a.At, a.Until))})
	}
	slices.SortStableFunc(ops, func(x, y porcupine.Operation) int { return cmp.Compare(x.Call, y.Call) })
	var parts [][]porcupine.Operation
	begin, end := 0, int64(math.MinInt64)
	for i, op := range ops {
		if i-begin >= partMin && op.Call > end {
			parts, begin = append(parts, ops[begin:i]), i
		}
		end = max(end, op.Return)
	}
	return append(parts, ops[begin:])
}

// illegal is a part of the history of a driver in which somebody acted who did not hold the lease, or for which
// that was not decided.
type illegal struct {
	result porcupine.CheckResult
	model  porcupine.Model
	info   porcupine.LinearizationInfo
	first  act // the first act that has no place; only if the history is illegal
}

// judge checks with porcupine that all acts for one driver are by the process that holds its lease at some moment of
// the act. It returns the parts for which that is not so.
func judge(turns []turn, acts []act) []illegal {
	var found []illegal
	state := registerState{}
	for _, part := range partsOf(turns, acts) {
		model := register(state)
		result, info := porcupine.CheckOperationsVerbose(model, part, decideTime)
		if result != porcupine.Ok {
			found = append(found, illegal{result: result, model: model, info: info, first: firstMisplaced(part, info)})
		}
		for _, op := range part {
			if in := op.Input.(registerOp); in.next > state.turn {
				state = registerState{in.next, in.turn.Holder}
			}
		}
	}
	return found
}

// firstMisplaced returns the first act that the longest legal order of a part leaves out.
func firstMisplaced(part []porcupine.Operation, info porcupine.LinearizationInfo) act {
	var longest []int
	for _, partition := range info.PartialLinearizations() {
		for _, order := range partition {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	placed := map[int]bool{}
	for _, id := range longest {
		placed[id] = true
	}
	first := act{At: forEver}
	for id, op := range part {
		if in := op.Input.(registerOp); in.next == 0 && !placed[id] && in.act.Until < first.Until || first.At == forEver && in.next == 0 && !placed[id] {
			first = in.act
		}
	}
	return first
}
