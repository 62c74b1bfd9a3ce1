package queue_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

func TestOneCallPerVolumeAtATime(t *testing.T) {
	inBubble(t, 10, func(t *testing.T, w *workshop) {
		for i := range 5 {
			w.add(fmt.Sprintf("attach%d", i), queue.AttachLane, call{volume: "v", takes: time.Second})
		}
		w.add("other", queue.AttachLane, call{volume: "w", takes: time.Second})
		w.finish()
		if got := w.last("attach", 5); got != 5*time.Second {
			t.Errorf("five calls of one volume ended after %v, want 5s: one after the other", got)
		}
		if got := w.ended["other"]; got != time.Second {
			t.Errorf("the call of another volume ended after %v, want 1s: it must not wait", got)
		}
	})
}

func TestDetachOfAVolumeIsServedBeforeItsAttachesThatWait(t *testing.T) {
	inBubble(t, 10, func(t *testing.T, w *workshop) {
		w.add("first", queue.AttachLane, call{volume: "v", takes: time.Second})
		synctest.Wait()
		w.add("second", queue.AttachLane, call{volume: "v", takes: time.Second})
		synctest.Wait()
		w.add("detach", queue.DetachLane, call{volume: "v", takes: time.Second})
		w.finish()
		if got := fmt.Sprint(w.order); got != "[first detach second]" {
			t.Errorf("order %v, want first, detach, second", got)
		}
	})
}

func TestCallsOfAMultiNodeVolumeRunSideBySideOnDifferentNodes(t *testing.T) {
	for parallel, want := range map[bool]time.Duration{true: 2 * time.Second, false: 6 * time.Second} {
		t.Run(fmt.Sprintf("parallel %v", parallel), func(t *testing.T) {
			inBubble(t, 20, func(t *testing.T, w *workshop) {
				w.queue.SetLimits(queue.Limits{Workers: 20, PerNode: 0, Parallel: parallel, Pause: aMinute})
				for i := range 3 {
					node := fmt.Sprintf("node%d", i)
					w.add(fmt.Sprintf("attach%d", i), queue.AttachLane, call{volume: "v", node: node, takes: time.Second})
					w.add(fmt.Sprintf("detach%d", i), queue.DetachLane, call{volume: "v", node: node, takes: time.Second})
				}
				w.finish()
				if got := max(w.last("attach", 3), w.last("detach", 3)); got != want {
					t.Errorf("two calls for each of three nodes took %v, want %v", got, want)
				}
			})
		})
	}
}

func TestCallThatMustBeTheOnlyOneWaitsForAllAndIsNotOvertaken(t *testing.T) {
	inBubble(t, 20, func(t *testing.T, w *workshop) {
		w.queue.SetLimits(queue.Limits{Workers: 20, PerNode: 0, Parallel: true, Pause: aMinute})
		w.add("attach0", queue.AttachLane, call{volume: "v", node: "node0", takes: time.Second})
		w.add("attach1", queue.AttachLane, call{volume: "v", node: "node1", takes: 3 * time.Second})
		synctest.Wait()
		w.add("only", queue.AttachLane, call{volume: "v", takes: time.Second})
		// Calls on other nodes that come one after the other, and would never leave a gap.
		for i := range 10 {
			synctest.Wait()
			w.add(fmt.Sprintf("later%d", i), queue.AttachLane, call{volume: "v", node: fmt.Sprintf("node%d", i+2), takes: 2 * time.Second})
			time.Sleep(500 * time.Millisecond)
		}
		w.finish()
		if got := w.began["only"]; got != 3*time.Second {
			t.Errorf("the call that must be the only one began after %v, want 3s", got)
		}
		for i := range 3 {
			if got := w.began[fmt.Sprintf("later%d", i)]; got != 4*time.Second {
				t.Errorf("a call that came later began after %v, want 4s, with the others that waited", got)
			}
		}
	})
}

func TestDetachGoesBeforeAttachesOfTheSameNodeThatWait(t *testing.T) {
	inBubble(t, 20, func(t *testing.T, w *workshop) {
		w.queue.SetLimits(queue.Limits{Workers: 20, PerNode: 0, Parallel: true, Pause: aMinute})
		w.add("first", queue.AttachLane, call{volume: "v", node: "node", takes: time.Second})
		synctest.Wait()
		w.add("second", queue.AttachLane, call{volume: "v", node: "node", takes: time.Second})
		synctest.Wait()
		w.add("detach", queue.DetachLane, call{volume: "v", node: "node", takes: time.Second})
		w.finish()
		if got := fmt.Sprint(w.order); got != "[first detach second]" {
			t.Errorf("order %v, want first, detach, second", got)
		}
	})
}

// A dead node: its detach hangs until its timeout, and is tried again soon after.
func TestDetachesThatAreTriedAgainDoNotKeepAnAttachWaitingForEver(t *testing.T) {
	const timeout, backoff, tries = 2 * time.Minute, 10 * time.Second, 20
	t.Run("of a multi-node volume", func(t *testing.T) {
		inBubble(t, 10, func(t *testing.T, w *workshop) {
			for i := range 3 {
				w.add(fmt.Sprintf("detach%d", i), queue.DetachLane, call{volume: "v", node: "n", takes: timeout, again: backoff, tries: tries})
			}
			synctest.Wait()
			w.add("attach", queue.AttachLane, call{volume: "v", node: "n", takes: time.Second})
			w.finish()
			// The detach in flight has its try, and the others go first once.
			if got := w.began["attach"]; got != 3*timeout {
				t.Errorf("the attach began after %v, want %v", got, 3*timeout)
			}
		})
	})
	for n := 1; n <= 3; n++ {
		t.Run(fmt.Sprintf("of a single-node volume, %d nodes", n), func(t *testing.T) {
			inBubble(t, 10, func(t *testing.T, w *workshop) {
				for i := range n {
					w.add(fmt.Sprintf("detach%d", i), queue.DetachLane, call{volume: "v", takes: timeout, again: backoff, tries: tries})
				}
				synctest.Wait()
				w.add("attach", queue.AttachLane, call{volume: "v", takes: time.Second})
				w.finish()
				if got, want := w.began["attach"], time.Duration(n)*timeout; got != want {
					t.Errorf("the attach began after %v, want %v: when each detach has had a try", got, want)
				}
			})
		})
	}
}

// waits is what an attach of a single-node volume does after a detach elsewhere has gone through some
// runs: it reports whether it waits for the detach.
func TestWhatHasToWaitForADetachDoesSoUnlessThatBacksOff(t *testing.T) {
	for name, c := range map[string]struct {
		delay func(t *testing.T, q *queue.Queue, e *queue.Item)
		want  bool
	}{
		"in flight":            {func(t *testing.T, q *queue.Queue, e *queue.Item) {}, true},
		"came at a bad moment": {func(t *testing.T, q *queue.Queue, e *queue.Item) { q.End(e, queue.Postpone(e.Lane, time.Hour)) }, true},
		"due again": {func(t *testing.T, q *queue.Queue, e *queue.Item) {
			q.Shut()
			q.End(e, queue.Again(queue.DetachLane))
		}, true},
		"pauses after it was repeated": {func(t *testing.T, q *queue.Queue, e *queue.Item) {
			q.End(e, queue.Again(queue.DetachLane))
			q.End(take(t, q, e.Key), queue.Again(queue.DetachLane))
		}, true},
		"done": {func(t *testing.T, q *queue.Queue, e *queue.Item) { q.End(e, queue.Finished) }, false},
		"backs off": {func(t *testing.T, q *queue.Queue, e *queue.Item) {
			q.End(e, queue.BackOff(queue.DetachLane, time.Hour))
		}, false},
		"backs off, after a bad moment": {func(t *testing.T, q *queue.Queue, e *queue.Item) {
			q.End(e, queue.Postpone(e.Lane, 0))
			q.End(take(t, q, e.Key), queue.BackOff(queue.DetachLane, time.Hour))
		}, false},
		"is an attach now": {func(t *testing.T, q *queue.Queue, e *queue.Item) {
			q.End(e, queue.Postpone(e.Lane, time.Hour))
			q.Shut()
			q.Add(e.Key, queue.AttachLane, only("v", "a"))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := open(10, 0, true)
				detach := taken(t, q, "detach", queue.DetachLane, only("v", "a"))
				c.delay(t, q, detach)
				q.Add(queue.AttachmentKey("attach"), queue.AttachLane, only("v", "b"))
				got := look(t, q, "attach")
				if waits := got.Wait == (queue.Wait{Kind: queue.WaitDetach, Detach: detach.Key}); waits != c.want {
					t.Errorf("%+v; waits for the detach: %v, want %v", got, waits, c.want)
				}
				q.Add(queue.AttachmentKey("attach"), queue.AttachLane, only("w", "b")) // it is another volume now
				if got := look(t, q, "attach"); got.State != queue.Ready || got.Wait.Kind != queue.WaitNothing && got.Wait.Kind != queue.WaitWorker {
					t.Errorf("%+v, want it to wait for no other work", got)
				}
			})
		})
	}
}
