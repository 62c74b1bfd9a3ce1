package hub

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestQueueThatLeavesItsWorkAloneIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(1)
		q.Open()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		free := make(chan struct{})
		go q.run(ctx, func(it *item) {
			<-free // a start that blocks: what must never be
			q.Done(it)
		})
		time.Sleep(2 * wedgedAfter)
		if q.wedged(time.Now()) {
			t.Error("a queue without work is taken for wedged")
		}
		q.Add(workKey{attachmentWork, "first"}, attachLane)
		synctest.Wait()
		q.SetLimits(10, 0)
		q.Add(workKey{attachmentWork, "second"}, attachLane)
		time.Sleep(wedgedAfter)
		if q.wedged(time.Now()) {
			t.Error("a queue is taken for wedged too early")
		}
		time.Sleep(time.Second)
		if !q.wedged(time.Now()) {
			t.Error("a queue that leaves its work alone is not found")
		}
		close(free)
		synctest.Wait()
		if q.wedged(time.Now()) {
			t.Error("a queue that moves again is taken for wedged")
		}
	})
}

func TestCachesThatNeverFillAreFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		synced := false
		check := checkSync(time.Now(), func() bool { return synced })
		time.Sleep(syncLimit)
		if err := check(); err != nil {
			t.Errorf("too early: %v", err)
		}
		time.Sleep(time.Second)
		if check() == nil {
			t.Error("caches that do not fill are not found")
		}
		synced = true
		if err := check(); err != nil {
			t.Errorf("caches that are filled: %v", err)
		}
	})
}

// The kubelet killed a hub that drained for longer than a minute, with all its drivers.
func TestQueueOfADriverThatDrainsIsNotTakenForWedged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(1)
		q.Open()
		ctx, cancel := context.WithCancel(t.Context())
		go q.run(ctx, func(*item) {}) // its call hangs
		q.Add(workKey{attachmentWork, "hanging"}, attachLane)
		synctest.Wait()
		q.SetLimits(10, 0)
		cancel()
		synctest.Wait()
		q.Add(workKey{attachmentWork, "waiting"}, attachLane)
		time.Sleep(10 * wedgedAfter)
		if q.wedged(time.Now()) {
			t.Error("a queue that has ended is taken for one that leaves its work alone")
		}
	})
}
