package queue_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

// A driver that throttles makes many nodes full at once. All that waits must then not move under one lock of the
// Queue: the hub would stand still.
func TestFullNodesAreNoticedInSmallSteps(t *testing.T) {
	const nodes, each = 50, 100
	q := open(2*nodes, 0, true)
	for i := range each {
		for n := range nodes {
			q.Add(queue.AttachmentKey(fmt.Sprintf("va-%d-%d", n, i)), queue.AttachLane, on(fmt.Sprint("node-", n), fmt.Sprintf("v-%d-%d", n, i)))
		}
	}
	held := func() (n int) {
		for _, full := range q.FullNodes() {
			n += len(full.Line)
		}
		return n
	}
	refused := 0
	for {
		before := held()
		e, again := q.Step(time.Now())
		if moved := held() - before; moved > queue.MostBlocked {
			t.Fatalf("%d items were moved in one step, want at most %d", moved, queue.MostBlocked)
		}
		if e != nil {
			refused++
			before := held()
			q.Refused(e)
			q.End(e, queue.Requeue(queue.AttachLane))
			if moved := held() - before; moved > 1 {
				t.Fatalf("%d items were moved by one refusal", moved)
			}
		}
		if !again {
			break
		}
	}
	if refused != nodes || held() != nodes*each {
		t.Errorf("%d were refused and %d wait, want one refusal for each node and all to wait", refused, held())
	}
}

// Entries that wait for a slot of their node do not take the slots of others when the node becomes full.
func TestThoseThatWaitForASlotJoinTheLine(t *testing.T) {
	inLineTest(t, func(t *testing.T) {
		q := open(10, 1, true)
		e := taken(t, q, "a", queue.AttachLane, on("full", "a"))
		for _, name := range []string{"b", "c"} {
			time.Sleep(time.Millisecond)
			q.Add(queue.AttachmentKey(name), queue.AttachLane, on("full", name))
		}
		time.Sleep(time.Millisecond)
		q.Add(queue.AttachmentKey("detach"), queue.DetachLane, on("full", "detach"))
		if got := started(q); len(got) > 0 {
			t.Fatalf("%v were started beside a", got)
		}
		q.Refused(e)
		q.End(e, queue.Requeue(queue.AttachLane))
		if got := started(q); !slices.Equal(got, []string{"detach"}) {
			t.Errorf("%v were started, want the detach", got)
		}
		if got, want := line(q), []string{"b", "c", "a"}; !slices.Equal(got, want) {
			t.Errorf("%v are in line, want %v", got, want)
		}
	})
}

// The oldest attaches are the first to start, also if several places become free at once.
func TestSeveralPlacesGoToTheOldestFirst(t *testing.T) {
	inLineTest(t, func(t *testing.T) {
		q := fullNode(t, "b", "c", "d")
		for range 3 {
			q.DetachedFrom("full")
		}
		if got, want := started(q), []string{"b", "c", "d"}; !slices.Equal(got, want) {
			t.Errorf("%v were started, want %v", got, want)
		}
	})
}
