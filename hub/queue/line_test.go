package queue_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

// fullNode returns a Queue in which the driver has refused the attach "refused" on the node "full", and in which
// "refused" and others wait there, in this order.
func fullNode(t *testing.T, others ...string) *queue.Queue {
	t.Helper()
	q := open(10, 0, true)
	e := taken(t, q, "refused", queue.AttachLane, on("full", "refused"))
	q.Refused(e)
	q.End(e, queue.Requeue(queue.AttachLane))
	for _, name := range others {
		time.Sleep(time.Millisecond)
		q.Add(queue.AttachmentKey(name), queue.AttachLane, on("full", name))
	}
	if got := started(q); len(got) > 0 {
		t.Fatalf("%v were started, and the node is full", got)
	}
	return q
}

// line returns those that wait for a place on the node "full".
func line(q *queue.Queue) []string {
	for _, n := range q.FullNodes() {
		if n.Node == "full" {
			return n.Line
		}
	}
	return nil
}

func inLineTest(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func TestAttachesToAFullNodeGoTheOldestFirst(t *testing.T) {
	inLineTest(t, func(t *testing.T) {
		q := fullNode(t, "b", "a")
		q.Add(queue.AttachmentKey("lost"), queue.DriftLane, on("full", "lost"))
		q.Add(queue.AttachmentKey("elsewhere"), queue.AttachLane, on("other", "elsewhere"))
		q.Add(queue.AttachmentKey("detach"), queue.DetachLane, on("full", "detach"))
		if got := started(q); !slices.Equal(got, []string{"elsewhere", "detach"}) && !slices.Equal(got, []string{"detach", "elsewhere"}) {
			t.Errorf("%v were started, want the attach elsewhere and the detach", got)
		}
		if got, want := line(q), []string{"b", "a", "refused", "lost"}; !slices.Equal(got, want) {
			t.Errorf("%v are in line, want %v", got, want)
		}
		if v := look(t, q, "a"); v.Wait != (queue.Wait{Kind: queue.WaitCapacity, Position: 2}) {
			t.Errorf("%+v, want a to be the second in line", v)
		}
		for _, want := range []string{"b", "a", "refused", "lost"} {
			q.DetachedFrom("full")
			e := take(t, q, queue.AttachmentKey(want))
			q.Published(e)
			q.End(e, queue.Finished)
			if got := started(q); len(got) > 0 {
				t.Errorf("%v were started after %s, and one volume was detached", got, want)
			}
		}
	})
}

func TestPermitOfAnItemThatLeavesGoesToTheNext(t *testing.T) {
	for name, leave := range map[string]func(t *testing.T, q *queue.Queue, e *queue.Item){
		"done": func(_ *testing.T, q *queue.Queue, e *queue.Item) { q.End(e, queue.Finished) },
		"failed": func(_ *testing.T, q *queue.Queue, e *queue.Item) {
			q.End(e, queue.BackOff(queue.AttachLane, time.Hour))
		},
		"postpone": func(_ *testing.T, q *queue.Queue, e *queue.Item) {
			q.End(e, queue.RequeueAfter(queue.AttachLane, time.Hour))
		},
		"deleted": func(_ *testing.T, q *queue.Queue, e *queue.Item) {
			q.End(e, queue.BackOff(queue.DetachLane, time.Hour))
		},
		"blocked": func(t *testing.T, q *queue.Queue, e *queue.Item) {
			q.Add(queue.AttachmentKey("before"), queue.DetachLane, queue.Destination{Target: attach.Target{VolumeHandle: "first", NodeID: "x"}, Node: "other"})
			if q.MayCall(e, on("full", "first")) {
				t.Fatal("the attach does not wait for the detach")
			}
			take(t, q, queue.AttachmentKey("before"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inLineTest(t, func(t *testing.T) {
				q := fullNode(t, "first", "next")
				q.DetachedFrom("full")
				leave(t, q, take(t, q, queue.AttachmentKey("first")))
				e := take(t, q, queue.AttachmentKey("next"))
				q.Published(e)
				q.End(e, queue.Finished)
				if got := started(q); len(got) > 0 {
					t.Errorf("%v were started, and one volume was detached", got)
				}
			})
		})
	}
	for name, leave := range map[string]func(q *queue.Queue){
		"deleted": func(q *queue.Queue) {
			q.Add(queue.AttachmentKey("first"), queue.DetachLane, on("full", "first"))
		},
		"another node": func(q *queue.Queue) {
			q.Add(queue.AttachmentKey("first"), queue.AttachLane, on("other", "first"))
		},
	} {
		t.Run(name+" before it starts", func(t *testing.T) {
			inLineTest(t, func(t *testing.T) {
				q := fullNode(t, "first", "next")
				q.Shut()
				q.DetachedFrom("full")
				started(q)
				leave(q)
				q.Open()
				time.Sleep(10 * time.Second)
				got := started(q)
				slices.Sort(got)
				if !slices.Equal(got, []string{"first", "next"}) {
					t.Errorf("%v were started, want the one that has left and the next in line", got)
				}
			})
		})
	}
}

func TestVolumeThatAloneIsRefusedDoesNotBlockTheOthers(t *testing.T) {
	inLineTest(t, func(t *testing.T) {
		q := fullNode(t, "b", "c")
		var order []string
		for range 5 {
			time.Sleep(time.Minute)
			for {
				e := q.Take(time.Now())
				if e == nil {
					break
				}
				order = append(order, e.Key.Name)
				if e.Key.Name == "refused" {
					q.Refused(e)
					q.End(e, queue.Requeue(queue.AttachLane))
					continue
				}
				q.Published(e)
				q.End(e, queue.Finished)
			}
		}
		if want := []string{"b", "refused", "c", "refused", "refused", "refused", "refused"}; !slices.Equal(order, want) {
			t.Errorf("%v were tried, want %v", order, want)
		}
	})
}

// Those that were lost wait behind the attach that alone is refused.
func TestVolumeThatAloneIsRefusedDoesNotBlockRepairs(t *testing.T) {
	for repairs := 1; repairs <= 2; repairs++ {
		inLineTest(t, func(t *testing.T) {
			q := fullNode(t)
			q.SetLimits(queue.Limits{Workers: 10, Parallel: true, Pause: func(refused int) time.Duration { return time.Minute << (refused - 1) }})
			for i := range repairs {
				name := fmt.Sprint("lost", i)
				q.Add(queue.AttachmentKey(name), queue.DriftLane, on("full", name))
			}
			tries := map[string]int{}
			for range 4 * 60 {
				time.Sleep(time.Second)
				for e := q.Take(time.Now()); e != nil; e = q.Take(time.Now()) {
					tries[e.Key.Name]++
					if e.Lane == queue.DriftLane {
						q.Published(e)
						q.End(e, queue.Finished)
						continue
					}
					q.Refused(e)
					q.End(e, queue.Requeue(queue.AttachLane))
				}
			}
			if tries["lost0"] != 1 || tries["refused"] > 3 {
				t.Errorf("%d repairs: tries %v in 4 minutes", repairs, tries)
			}
		})
	}
}

func TestNodeIsForgottenWhenNobodyWaits(t *testing.T) {
	inLineTest(t, func(t *testing.T) {
		q := fullNode(t)
		q.Add(queue.AttachmentKey("refused"), queue.DetachLane, on("full", "refused"))
		q.End(take(t, q, queue.AttachmentKey("refused")), queue.Finished)
		if len(q.FullNodes()) != 1 {
			t.Error("the node is forgotten at once: the next attaches would all be refused")
		}
		time.Sleep(time.Minute)
		q.Take(time.Now())
		if left := q.Remains(); left != "" {
			t.Errorf("left at the end: %s", left)
		}
	})
}

// A volume that waits for a place on one node must not be withheld from another node.
func TestHeldAttachDoesNotWithholdItsVolume(t *testing.T) {
	inLineTest(t, func(t *testing.T) {
		q := fullNode(t, "v")
		q.Add(queue.AttachmentKey("elsewhere"), queue.AttachLane, on("other", "v"))
		e := take(t, q, queue.AttachmentKey("elsewhere"))
		q.DetachedFrom("full")
		q.DetachedFrom("full")
		if got := started(q); !slices.Equal(got, []string{"refused"}) {
			t.Errorf("%v were started, and the volume of v has a call in flight", got)
		}
		q.End(e, queue.Finished)
		if got := started(q); !slices.Equal(got, []string{"v"}) {
			t.Errorf("%v were started, want v to go when its volume is free", got)
		}
	})
}

// These had been let go before the driver said that the node is full.
func TestAttachThatHasNotBegunWaitsOnceItsNodeIsFull(t *testing.T) {
	inLineTest(t, func(t *testing.T) {
		q := open(10, 0, true)
		first := taken(t, q, "first", queue.AttachLane, on("full", "first"))
		second := taken(t, q, "second", queue.AttachLane, on("full", "second"))
		time.Sleep(time.Millisecond)
		q.Add(queue.AttachmentKey("third"), queue.AttachLane, on("full", "third"))
		q.Refused(first)
		q.End(first, queue.Requeue(queue.AttachLane))
		if got := started(q); len(got) > 0 {
			t.Errorf("%v were started, and the node is full", got)
		}
		if q.MayCall(second, on("full", "second")) {
			t.Error("the worker may call the driver, and the node is full")
		}
		started(q)
		if got, want := line(q), []string{"second", "third", "first"}; !slices.Equal(got, want) {
			t.Errorf("%v are in line, want %v", got, want)
		}
	})
}
