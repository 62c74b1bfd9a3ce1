package queue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestQueueThatLeavesItsWorkAloneIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue()
		q.Begin()
		q.SetLimits(Limits{Workers: 1})
		q.Open()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		free := make(chan struct{})
		go q.Run(ctx, func(it *Item) {
			<-free // a start that blocks: what must never be
			q.End(it, Finished)
		})
		time.Sleep(2 * WedgedAfter)
		if q.IsWedged(time.Now()) {
			t.Error("a queue without work is taken for wedged")
		}
		q.Add(AttachmentKey("first"), AttachLane, Destination{})
		synctest.Wait()
		q.SetLimits(Limits{Workers: 10, PerNode: 0, Parallel: true})
		q.Add(AttachmentKey("second"), AttachLane, Destination{})
		time.Sleep(WedgedAfter)
		if q.IsWedged(time.Now()) {
			t.Error("a queue is taken for wedged too early")
		}
		time.Sleep(time.Second)
		if !q.IsWedged(time.Now()) {
			t.Error("a queue that leaves its work alone is not found")
		}
		close(free)
		synctest.Wait()
		if q.IsWedged(time.Now()) {
			t.Error("a queue that moves again is taken for wedged")
		}
	})
}

// The kubelet killed a hub that drained for longer than a minute, with all its drivers.
func TestQueueOfADriverThatDrainsIsNotTakenForWedged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue()
		q.Begin()
		q.SetLimits(Limits{Workers: 1})
		q.Open()
		ctx, cancel := context.WithCancel(t.Context())
		go q.Run(ctx, func(*Item) {}) // its call hangs
		q.Add(AttachmentKey("hanging"), AttachLane, Destination{})
		synctest.Wait()
		q.SetLimits(Limits{Workers: 10, PerNode: 0, Parallel: true})
		cancel()
		synctest.Wait()
		q.Add(AttachmentKey("waiting"), AttachLane, Destination{})
		time.Sleep(10 * WedgedAfter)
		if q.IsWedged(time.Now()) {
			t.Error("a queue that has ended is taken for one that leaves its work alone")
		}
	})
}
