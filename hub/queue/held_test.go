package queue_test

import (
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

// What waits for a call that is held from now on may go.
func TestCallThatIsHeldLetsOthersOfItsVolumeGo(t *testing.T) {
	q := queue.NewQueue()
	q.Begin()
	q.SetLimits(queue.Limits{Workers: 10, PerNode: 1, Pause: func(int) time.Duration { return time.Hour }})
	q.Open()
	now := time.Now()
	at := func(v, n string) queue.Destination {
		return queue.Destination{Target: attach.Target{VolumeHandle: v, NodeID: "id-" + n}, Node: n}
	}
	x, d, e := queue.AttachmentKey("x"), queue.AttachmentKey("d"), queue.AttachmentKey("e")
	q.Add(x, queue.AttachLane, at("x", "n"))
	running := q.Take(now)
	q.Add(d, queue.AttachLane, at("v", "n")) // waits for a slot of node n
	if q.Take(now) != nil {
		t.Fatal("d starts")
	}
	q.Add(e, queue.AttachLane, at("v", "m")) // waits for d
	if q.Take(now) != nil {
		t.Fatal("e starts beside d")
	}
	q.Refused(running)
	q.End(running, queue.Requeue(queue.AttachLane))
	var started []string
	for i := q.Take(now); i != nil; i = q.Take(now) {
		started = append(started, i.Key.Name)
	}
	look, _ := q.Look(d)
	if len(started) != 1 || started[0] != "e" {
		t.Errorf("%v starts, want e: d waits for a place, %+v", started, look.Wait)
	}
}

// d needs no place, and waits for the slot of x.
func TestWhatNeedsNoPlaceGoesWhenTheLimitOfItsFullNodeIsTakenAway(t *testing.T) {
	q := queue.NewQueue()
	q.Begin()
	limits := queue.Limits{Workers: 10, PerNode: 1, Pause: func(int) time.Duration { return time.Hour }}
	q.SetLimits(limits)
	q.Open()
	now := time.Now()
	at := func(v string, noted bool) queue.Destination {
		return queue.Destination{Target: attach.Target{VolumeHandle: v, NodeID: "id-n"}, Node: "n", Noted: noted}
	}
	q.Add(queue.AttachmentKey("x"), queue.AttachLane, at("x", false))
	running := q.Take(now)
	q.Add(queue.AttachmentKey("c"), queue.AttachLane, at("c", false))
	q.Add(queue.AttachmentKey("d"), queue.AttachLane, at("d", true))
	q.Take(now)
	q.Refused(running)
	limits.PerNode = 0
	q.SetLimits(limits)
	q.End(running, queue.Requeue(queue.AttachLane))
	if e := q.Take(now.Add(time.Minute)); e == nil || e.Key.Name != "d" {
		look, _ := q.Look(queue.AttachmentKey("d"))
		t.Errorf("%v starts, want d: %v %+v", e, look.State, look.Wait)
	}
}
