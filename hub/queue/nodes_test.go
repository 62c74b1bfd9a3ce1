package queue_test

import (
	"slices"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

// on is the destination of a volume at a Kubernetes node.
func on(node, handle string) queue.Destination {
	p := only(handle, "id of "+node)
	p.Node = node
	return p
}

func TestSlotOfANodeGoesToADetachFirst(t *testing.T) {
	q := open(10, 1, true)
	first := taken(t, q, "first", queue.AttachLane, on("node", "1"))
	q.Add(queue.AttachmentKey("second"), queue.AttachLane, on("node", "2"))
	if got := started(q); len(got) > 0 {
		t.Fatalf("%v were started beside the only one that the node may have", got)
	}
	q.Add(queue.AttachmentKey("third"), queue.DetachLane, on("node", "3"))
	if got := started(q); len(got) > 0 {
		t.Fatalf("%v were started beside the only one that the node may have", got)
	}
	for _, name := range []string{"second", "third"} {
		if v := look(t, q, name); v.State != queue.Blocked || v.Wait.Kind != queue.WaitNode {
			t.Errorf("%s: %+v, want it to wait for the node", name, v)
		}
	}
	q.End(first, queue.Finished)
	for _, want := range []string{"third", "second"} {
		q.End(take(t, q, queue.AttachmentKey(want)), queue.Finished)
	}
	if left := q.Remains(); left != "" {
		t.Errorf("left at the end: %s", left)
	}
}

func TestFullNodeDoesNotKeepOthersWaiting(t *testing.T) {
	q := open(10, 1, true)
	taken(t, q, "first", queue.AttachLane, on("full", "1"))
	for _, name := range []string{"2", "3", "4"} {
		q.Add(queue.AttachmentKey(name), queue.AttachLane, on("full", name))
	}
	q.Add(queue.AttachmentKey("elsewhere"), queue.AttachLane, on("empty", "5"))
	q.Add(queue.AttachmentKey("nowhere"), queue.AttachLane, only("6", "n"))
	if got := started(q); !slices.Equal(got, []string{"elsewhere", "nowhere"}) {
		t.Errorf("%v were started, want those that are not on the full node", got)
	}
}

func TestRaisedLimitLetsThoseThatWaitBegin(t *testing.T) {
	for name, c := range map[string]struct {
		limit int
		want  []string
	}{"to two": {2, []string{"b"}}, "to as many as there are": {5, []string{"b", "c"}}, "to none": {0, []string{"b", "c"}}} {
		t.Run(name, func(t *testing.T) {
			q := open(10, 1, true)
			for _, name := range []string{"a", "b", "c"} {
				q.Add(queue.AttachmentKey(name), queue.AttachLane, on("node", name))
			}
			if got := started(q); !slices.Equal(got, []string{"a"}) {
				t.Fatalf("%v were started, want a only", got)
			}
			q.SetLimits(queue.Limits{Workers: 10, PerNode: c.limit, Parallel: true, Pause: aMinute})
			if got := started(q); !slices.Equal(got, c.want) {
				t.Errorf("%v were started after the limit was raised, want %v", got, c.want)
			}
		})
	}
}

func TestLoweredLimitHoldsForThoseThatComeAfterIt(t *testing.T) {
	q := open(10, 3, true)
	var running []*queue.Item
	for _, name := range []string{"a", "b", "c"} {
		running = append(running, taken(t, q, name, queue.AttachLane, on("node", name)))
	}
	q.SetLimits(queue.Limits{Workers: 10, PerNode: 1, Parallel: true, Pause: aMinute})
	q.Add(queue.AttachmentKey("d"), queue.AttachLane, on("node", "d"))
	for _, e := range running {
		if got := started(q); len(got) > 0 {
			t.Fatalf("%v were started, and the node has its one", got)
		}
		q.End(e, queue.Finished)
	}
	take(t, q, queue.AttachmentKey("d"))
}
