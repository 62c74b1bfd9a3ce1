package queue_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

func at(nodeID string) attach.Target { return attach.Target{VolumeHandle: "v", NodeID: nodeID} }

// The rules of calls, each by itself. The calls come in the order in which they became due.
func TestNextFollowsTheRules(t *testing.T) {
	const (
		start  = "start"
		waits  = "waits for the volume"
		none   = "-"                 // not due
		detach = "waits for detach " // and its index
	)
	attachTo := func(node string) queue.Call { return queue.Call{Target: at(node)} }
	detachFrom := func(node string) queue.Call { return queue.Call{Target: at(node), Detach: true} }
	multi := func(c queue.Call) queue.Call { c.Shared = true; return c }
	dangling := func(c queue.Call) queue.Call { c.Detach, c.Dangling = true, true; return c }
	in := func(s queue.CallState, c queue.Call) queue.Call { c.State = s; return c }
	served := func(step uint64, c queue.Call) queue.Call { c.Served = step; return c }
	tried := func(step uint64, c queue.Call) queue.Call { c.Tried = step; return c }
	flies := func(c queue.Call) queue.Call { return in(queue.InFlight, c) }
	type calls = []queue.Call
	for name, c := range map[string]struct {
		calls    []queue.Call // that of index i became due at step 10*(i+1)
		parallel bool
		want     []string
	}{
		"a call may start if none is in flight":                                  {calls{attachTo("a")}, true, []string{start}},
		"one call at a time":                                                     {calls{attachTo("a"), attachTo("b")}, true, []string{start, waits}},
		"one call at a time, with one in flight":                                 {calls{flies(attachTo("a")), attachTo("b")}, true, []string{none, waits}},
		"a detach waits for an attach in flight":                                 {calls{flies(attachTo("a")), detachFrom("b")}, true, []string{none, waits}},
		"multi-node calls at different node IDs go together":                     {calls{flies(multi(attachTo("a"))), multi(attachTo("b")), multi(detachFrom("c"))}, true, []string{none, start, start}},
		"multi-node calls at one node ID do not":                                 {calls{flies(multi(attachTo("a"))), multi(detachFrom("a"))}, true, []string{none, waits}},
		"multi-node calls do not go together without parallelMultiNode":          {calls{flies(multi(attachTo("a"))), multi(attachTo("b"))}, false, []string{none, waits}},
		"a multi-node call does not go beside a single-node one":                 {calls{flies(attachTo("a")), multi(attachTo("b"))}, true, []string{none, waits}},
		"a single-node call does not go beside a multi-node one":                 {calls{flies(multi(attachTo("a"))), attachTo("b")}, true, []string{none, waits}},
		"no publish of a single-node volume while an unpublish elsewhere is due": {calls{attachTo("a"), detachFrom("b")}, true, []string{detach + "1", start}},
		"nor while it is in flight":                                              {calls{attachTo("a"), flies(detachFrom("b"))}, true, []string{detach + "1", none}},
		"nor while it pauses":                                                    {calls{attachTo("a"), in(queue.Pauses, detachFrom("b"))}, true, []string{detach + "1", none}},
		"an unpublish that backs off holds nobody up":                            {calls{attachTo("a"), in(queue.BacksOff, detachFrom("b"))}, true, []string{start, none}},
		"an unpublish of which a try has failed since then does neither":         {calls{attachTo("a"), tried(15, detachFrom("b"))}, true, []string{start, waits}},
		"nor if it pauses now":                                                   {calls{attachTo("a"), tried(15, in(queue.Pauses, detachFrom("b")))}, true, []string{start, none}},
		"one of which a try has failed before does":                              {calls{attachTo("a"), tried(5, detachFrom("b"))}, true, []string{detach + "1", start}},
		"and one that is in flight again":                                        {calls{attachTo("a"), tried(15, flies(detachFrom("b")))}, true, []string{detach + "1", none}},
		"each unpublish has one try":                                             {calls{attachTo("a"), tried(15, detachFrom("b")), detachFrom("c")}, true, []string{detach + "2", waits, start}},
		"an attach that pauses holds nobody up":                                  {calls{attachTo("a"), in(queue.Pauses, attachTo("b"))}, true, []string{start, none}},
		"a publish of a multi-node volume waits for no unpublish elsewhere":      {calls{multi(attachTo("a")), in(queue.Pauses, multi(detachFrom("b")))}, true, []string{start, none}},
		"a dangling publication elsewhere goes first too":                        {calls{attachTo("a"), in(queue.Pauses, dangling(attachTo("b")))}, true, []string{detach + "1", none}},
		"what is left at the target of a publish is taken over":                  {calls{attachTo("a"), in(queue.Pauses, dangling(attachTo("a")))}, true, []string{start, none}},
		"a detach waits for no other detach that pauses":                         {calls{detachFrom("a"), in(queue.Pauses, detachFrom("b"))}, true, []string{start, none}},
		"detaches go first":                                                      {calls{multi(attachTo("a")), multi(detachFrom("a"))}, true, []string{waits, start}},
		"then the longest waiting":                                               {calls{multi(attachTo("a")), multi(attachTo("a")), multi(detachFrom("a")), multi(detachFrom("a"))}, true, []string{waits, waits, start, waits}},
		"a detach that has been served since then does not go first once more":   {calls{multi(attachTo("a")), served(15, multi(detachFrom("a")))}, true, []string{start, waits}},
		"one that was served before it does":                                     {calls{multi(attachTo("a")), served(5, multi(detachFrom("a")))}, true, []string{waits, start}},
		"nothing overtakes a call that needs the volume for itself":              {calls{flies(multi(attachTo("a"))), attachTo("b"), multi(attachTo("c")), multi(attachTo("d"))}, true, []string{none, waits, waits, waits}},
		"nor a detach that does":                                                 {calls{flies(multi(attachTo("a"))), multi(attachTo("c")), detachFrom("b")}, true, []string{none, waits, waits}},
		"a multi-node call that waits holds up only its own node":                {calls{flies(multi(attachTo("a"))), multi(attachTo("a")), multi(attachTo("b"))}, true, []string{none, waits, start}},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range c.calls {
				c.calls[i].Came = uint64(10 * (i + 1))
			}
			var got []string
			for i, v := range queue.Next(c.calls, c.parallel) {
				switch {
				case c.calls[i].State != queue.Due:
					got = append(got, none)
				case v.Start:
					got = append(got, start)
				case v.Wait == queue.WaitDetach:
					got = append(got, fmt.Sprint(detach, v.After))
				case v.Wait == queue.WaitVolume:
					got = append(got, waits)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
