package queue_test

import (
	"slices"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

// The worker finds what it has to wait for: where the volume is was not known when the item began.
func TestWorkerThatFindsADetachLeavesItsItemAndTheItemRunsAnewWhenThatEnds(t *testing.T) {
	q := open(10, 0, true)
	detach := taken(t, q, "detach", queue.DetachLane, only("v", "a"))
	attach := taken(t, q, "attach", queue.AttachLane, queue.Destination{})
	if q.MayCall(attach, only("v", "b")) {
		t.Fatal("the attach goes on beside the detach")
	}
	if v := look(t, q, "attach"); v.State != queue.Blocked || v.Wait.Detach != detach.Key {
		t.Errorf("%+v, want it to wait for the detach", v)
	}
	q.End(detach, queue.Finished)
	take(t, q, attach.Key)
	if !q.MayCall(attach, only("v", "b")) {
		t.Error("it waits, and nothing else is to be done")
	}
}

// A detach comes while the worker reads what it needs for its call.
func TestCallThatHasNotBegunMakesWayForADetachThatComes(t *testing.T) {
	q := open(10, 0, true)
	attach := taken(t, q, "attach", queue.AttachLane, only("v", "b"))
	q.Add(queue.AttachmentKey("detach"), queue.DetachLane, only("v", "a"))
	if got := started(q); len(got) > 0 {
		t.Fatalf("%v began beside the attach", got)
	}
	if q.MayCall(attach, only("v", "b")) {
		t.Fatal("the attach goes first")
	}
	detach := take(t, q, queue.AttachmentKey("detach"))
	q.End(detach, queue.Finished)
	take(t, q, attach.Key)
}

func TestWorkerMayReserveTheSamePlaceRepeatedly(t *testing.T) {
	q := open(10, 0, true)
	attach := taken(t, q, "attach", queue.AttachLane, only("v", "b"))
	q.Add(queue.AttachmentKey("next"), queue.AttachLane, only("v", "c"))
	for range 3 {
		if !q.MayCall(attach, only("v", "b")) {
			t.Fatal("it has to wait for what came after it")
		}
	}
}

// A attachment has its volume at its previous target still: it is called there first.
func TestItemThatMovesToAnotherNodeOfItsVolumeLetsNobodyGetBetween(t *testing.T) {
	q := open(10, 0, true)
	e := taken(t, q, "e", queue.AttachLane, only("v", "a"))
	if !q.MayCall(e, only("v", "b")) {
		t.Fatal("it has to wait for nobody")
	}
	q.Add(queue.AttachmentKey("next"), queue.AttachLane, only("v", "c"))
	if got := started(q); len(got) > 0 {
		t.Errorf("%v began beside it", got)
	}
	q.End(e, queue.Finished)
	take(t, q, queue.AttachmentKey("next"))
}

func TestItemThatMovesToAnotherVolumeLetsThoseGoThatWaitedForIt(t *testing.T) {
	for name, blocked := range map[string]bool{"and goes on": false, "and has to wait there": true} {
		t.Run(name, func(t *testing.T) {
			q := open(10, 0, true)
			if blocked {
				taken(t, q, "other", queue.AttachLane, only("w", "a"))
			}
			e := taken(t, q, "e", queue.AttachLane, only("v", "a"))
			q.Add(queue.AttachmentKey("next"), queue.AttachLane, only("v", "c"))
			if got := q.MayCall(e, only("w", "b")); got == blocked {
				t.Fatalf("it goes on: %v", got)
			}
			if got := started(q); !slices.Equal(got, []string{"next"}) {
				t.Errorf("%v were started, want the next of the volume that it left", got)
			}
		})
	}
}

func TestOthersGoOnWhenTheItemBeforeThemWaitsNoMore(t *testing.T) {
	q := open(100, 0, true)
	taken(t, q, "on a", queue.AttachLane, shared("v", "a"))
	q.Add(queue.AttachmentKey("only"), queue.AttachLane, only("v", "x"))
	q.Add(queue.AttachmentKey("beside"), queue.AttachLane, shared("v", "b"))
	if got := started(q); len(got) > 0 {
		t.Fatalf("%v were started, want none", got)
	}
	q.Add(queue.AttachmentKey("only"), queue.AttachLane, only("w", "x")) // it is another volume now
	if got := started(q); !slices.Contains(got, "beside") {
		t.Errorf("%v were started, want the one beside among them", got)
	}
}

func TestAllThatWaitRunOnceWhenCallsMayRunSideBySide(t *testing.T) {
	q := open(100, 0, false)
	taken(t, q, "on a", queue.AttachLane, shared("v", "a"))
	for _, node := range []string{"b", "c", "a"} {
		q.Add(queue.AttachmentKey("second on "+node), queue.AttachLane, shared("v", node))
	}
	if got := started(q); len(got) > 0 {
		t.Fatalf("%v were started, want none", got)
	}
	q.SetLimits(queue.Limits{Workers: 100, PerNode: 0, Parallel: true, Pause: aMinute})
	q.SetLimits(queue.Limits{Workers: 100, PerNode: 0, Parallel: true, Pause: aMinute})
	if got := started(q); !slices.Equal(got, []string{"second on b", "second on c"}) {
		t.Errorf("%v were started, want those for other nodes, once each", got)
	}
}

func TestThoseThatHaveNotBegunWaitWhenCallsMayNoLongerRunSideBySide(t *testing.T) {
	q := open(100, 0, true)
	first := taken(t, q, "only", queue.AttachLane, only("v", "x"))
	for _, node := range []string{"a", "b", "c"} {
		q.Add(queue.AttachmentKey("on "+node), queue.AttachLane, shared("v", node))
	}
	q.End(first, queue.Finished) // the others may run now, and no worker has taken them
	q.SetLimits(queue.Limits{Workers: 100, PerNode: 0, Parallel: false, Pause: aMinute})
	for _, want := range []string{"on a", "on b", "on c"} {
		e := take(t, q, queue.AttachmentKey(want))
		if got := started(q); len(got) > 0 {
			t.Errorf("%v began beside %s", got, want)
		}
		q.End(e, queue.Finished)
	}
}

func TestItemThatNoLongerNeedsTheVolumeForItselfLetsOthersGo(t *testing.T) {
	q := open(100, 0, true)
	it := taken(t, q, "it", queue.AttachLane, only("v", "a"))
	q.Add(queue.AttachmentKey("other"), queue.AttachLane, shared("v", "b"))
	if got := started(q); len(got) > 0 {
		t.Fatalf("%v were started, want none", got)
	}
	q.MayCall(it, shared("v", "a")) // from now on it needs the volume on one node only
	if got := started(q); !slices.Contains(got, "other") {
		t.Errorf("%v were started, want the other one", got)
	}
	if q.MayCall(it, only("v", "a")) {
		t.Error("it has the volume for itself beside the other one")
	}
}
