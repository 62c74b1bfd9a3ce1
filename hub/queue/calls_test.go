package queue_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

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
		"came at a bad moment": {func(t *testing.T, q *queue.Queue, e *queue.Item) { q.End(e, queue.RequeueAfter(e.Lane, time.Hour)) }, true},
		"due again": {func(t *testing.T, q *queue.Queue, e *queue.Item) {
			q.Shut()
			q.End(e, queue.Requeue(queue.DetachLane))
		}, true},
		"pauses after it was repeated": {func(t *testing.T, q *queue.Queue, e *queue.Item) {
			q.End(e, queue.Requeue(queue.DetachLane))
			q.End(take(t, q, e.Key), queue.Requeue(queue.DetachLane))
		}, true},
		"done": {func(t *testing.T, q *queue.Queue, e *queue.Item) { q.End(e, queue.Finished) }, false},
		"backs off": {func(t *testing.T, q *queue.Queue, e *queue.Item) {
			q.End(e, queue.BackOff(queue.DetachLane, time.Hour))
		}, false},
		"backs off, after a bad moment": {func(t *testing.T, q *queue.Queue, e *queue.Item) {
			q.End(e, queue.RequeueAfter(e.Lane, 0))
			q.End(take(t, q, e.Key), queue.BackOff(queue.DetachLane, time.Hour))
		}, false},
		"is an attach now": {func(t *testing.T, q *queue.Queue, e *queue.Item) {
			q.End(e, queue.RequeueAfter(e.Lane, time.Hour))
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
