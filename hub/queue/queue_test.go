package queue_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

func TestThereIsOneItemPerKey(t *testing.T) {
	q := open(10, 0, true)
	for range 3 {
		q.Add(queue.AttachmentKey("a"), queue.AttachLane, only("v", "n"))
	}
	q.Add(queue.FinalizerKey("a"), queue.FinalizerLane, queue.Destination{}) // another kind, another key
	if got := started(q); len(got) != 2 {
		t.Errorf("%d items started, want one of each key", len(got))
	}
}

func TestAddEndsTheDelayOfAnItemAndChangesItsLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(10, 0, true)
		e := taken(t, q, "va", queue.AttachLane, only("v", "n"))
		q.End(e, queue.BackOff(queue.AttachLane, time.Hour))
		if v := look(t, q, "va"); v.State != queue.Delayed || v.Due != time.Now().Add(time.Hour) {
			t.Fatalf("%+v, want it delayed for an hour", v)
		}
		q.Add(e.Key, queue.DetachLane, only("v", "n"))
		if v := look(t, q, "va"); v.State != queue.Ready || v.Lane != queue.DetachLane {
			t.Errorf("%+v, want it ready in the detach lane", v)
		}
	})
}

func TestAddMovesAnItemThatWaitsToItsNewLaneAndVolume(t *testing.T) {
	q := open(10, 0, true)
	first := taken(t, q, "first", queue.AttachLane, only("v", "a"))
	q.Add(queue.AttachmentKey("second"), queue.AttachLane, only("v", "b"))
	if v := look(t, q, "second"); v.State != queue.Blocked || v.Wait.Kind != queue.WaitVolume {
		t.Fatalf("%+v, want it blocked by the call in flight", v)
	}
	q.Add(queue.AttachmentKey("second"), queue.DetachLane, only("w", "b"))
	take(t, q, queue.AttachmentKey("second"))
	q.End(first, queue.Finished)
	if got := started(q); len(got) > 0 {
		t.Errorf("%v started once more", got)
	}
}

func TestItemThatIsAddedWhileItRunsIsChangedAndRunsOnceMore(t *testing.T) {
	q := open(10, 0, true)
	e := taken(t, q, "va", queue.AttachLane, only("v", "n"))
	if q.ClearChanged(e) {
		t.Error("it has changed before anything came")
	}
	q.Add(e.Key, queue.AttachLane, only("v", "n"))
	if got := started(q); len(got) > 0 {
		t.Fatalf("%v runs twice at once", got)
	}
	if !q.ClearChanged(e) || q.ClearChanged(e) {
		t.Error("want it reported as changed, once")
	}
	q.End(e, queue.Finished)
	if q.Has(e.Key) {
		t.Error("it runs once more after its worker has looked at the change")
	}
	e = taken(t, q, "va", queue.AttachLane, only("v", "n"))
	q.Add(e.Key, queue.AttachLane, only("v", "n"))
	q.End(e, queue.BackOff(queue.AttachLane, time.Hour))
	take(t, q, e.Key)
}

// AddAndRetry and RetryNow say that a failure may not happen again: they cut the backoff that the run would
// lead to, and do not repeat a run that succeeds.
func TestRunDuringWhichSomethingChangedThatMayHelpIsRepeatedIfItFails(t *testing.T) {
	dest := only("v", "n")
	for name, help := range map[string]func(*queue.Queue, queue.Key){
		"AddAndRetry": func(q *queue.Queue, key queue.Key) { q.AddAndRetry(key, queue.AttachLane, dest) },
		"RetryNow":    func(q *queue.Queue, key queue.Key) { q.RetryNow(key) },
	} {
		t.Run(name, func(t *testing.T) {
			q := open(10, 0, true)
			e := taken(t, q, "va", queue.AttachLane, dest)
			help(q, e.Key)
			q.ClearChanged(e)
			q.End(e, queue.BackOff(queue.AttachLane, time.Hour))
			e = take(t, q, e.Key)
			help(q, e.Key)
			q.ClearChanged(e)
			q.End(e, queue.Finished)
			if q.Has(e.Key) {
				t.Error("a run that succeeded is repeated")
			}
		})
	}
}

func TestDelayedItemRunsWhenItIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		q := open(1, 0, true)
		runs := make(chan time.Time)
		go q.Run(ctx, func(e *queue.Item) {
			go func() {
				runs <- time.Now()
				q.End(e, queue.BackOff(queue.AttachLane, 3*time.Second))
			}()
		})
		q.Add(queue.AttachmentKey("va"), queue.AttachLane, queue.Destination{})
		first, second := <-runs, <-runs
		if got := second.Sub(first); got != 3*time.Second {
			t.Errorf("ran again after %v, want 3s", got)
		}
		synctest.Wait()
		q.RetryNow(queue.AttachmentKey("va"))
		if got := (<-runs).Sub(second); got != 0 {
			t.Errorf("ran again %v after RetryNow, want at once", got)
		}
	})
}

// A longer delay must not hide a shorter one that comes after it.
func TestDelayedItemsRunInTheOrderInWhichTheyAreDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(10, 0, true)
		for i, delay := range []int{5, 1, 4, 2, 3} {
			e := taken(t, q, fmt.Sprint(delay), queue.AttachLane, only(fmt.Sprint("v", i), "n"))
			q.End(e, queue.BackOff(queue.AttachLane, time.Duration(delay)*time.Second))
		}
		q.RetryNow(queue.AttachmentKey("4"))
		take(t, q, queue.AttachmentKey("4"))
		for _, want := range []int{1, 2, 3, 5} {
			time.Sleep(time.Until(look(t, q, fmt.Sprint(want)).Due))
			take(t, q, queue.AttachmentKey(fmt.Sprint(want)))
			if got := started(q); len(got) > 0 {
				t.Errorf("%v started before they were due", got)
			}
		}
	})
}

func TestItemThatChangesItsLaneIsOtherWorkAndCountsFromThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(10, 0, true)
		begin := time.Now()
		e := taken(t, q, "va", queue.AttachLane, only("v", "n"))
		time.Sleep(time.Minute)
		q.End(e, queue.BackOff(queue.AttachLane, time.Minute))
		time.Sleep(time.Minute)
		if e = take(t, q, e.Key); e.Required != begin {
			t.Error("a retry counts from its own begin, not from that of its work")
		}
		q.End(e, queue.Requeue(queue.DetachLane))
		if got := look(t, q, "va").Required; got != begin.Add(2*time.Minute) {
			t.Errorf("the detach counts from %v after the begin, want 2m", got.Sub(begin))
		}
	})
}

// repeating runs a Queue whose workers ask for another run at once, up to a thousand times. The
// function that it returns says how many runs there were.
func repeating(ctx context.Context, q *queue.Queue, l queue.Lane) func() int {
	var mu sync.Mutex
	runs := 0
	go q.Run(ctx, func(e *queue.Item) {
		mu.Lock()
		runs++
		enough := runs >= 1000
		mu.Unlock()
		if enough {
			q.End(e, queue.Finished)
			return
		}
		q.End(e, queue.Requeue(l))
	})
	return func() int {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return runs
	}
}

func TestAWorkerCannotRepeatItsWorkWithoutAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		q, key, dest := open(1, 0, true), queue.AttachmentKey("va"), only("v", "n")
		runs := repeating(ctx, q, queue.AttachLane)
		q.Add(key, queue.AttachLane, dest)
		if got := runs(); got != 2 {
			t.Errorf("%d runs at once, want 2", got)
		}
		time.Sleep(time.Minute)
		before := runs()
		if before > 40 {
			t.Errorf("%d runs in a minute, want a few", before)
		}
		for name, ask := range map[string]func(){
			"Add":         func() { q.Add(key, queue.AttachLane, dest) },
			"AddAndRetry": func() { q.AddAndRetry(key, queue.AttachLane, dest) },
			"RetryNow":    func() { q.RetryNow(key) },
		} {
			time.Sleep(queue.RepeatPauseMax / 2)
			before = runs()
			ask()
			if got := runs() - before; got != 2 {
				t.Errorf("%d runs at once after %s, want 2: what is new may help", got, name)
			}
		}
	})
}

// What comes between says that the run before was no repeat for nothing.
func TestWorkThatHasBackedOffIsRepeatedAtOnceAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(1, 0, true)
		e := taken(t, q, "va", queue.AttachLane, only("v", "n"))
		q.End(e, queue.Requeue(queue.AttachLane))
		q.End(take(t, q, e.Key), queue.Requeue(queue.AttachLane))
		if v := look(t, q, "va"); v.State != queue.Delayed {
			t.Fatalf("%+v, want it to pause", v)
		}
		time.Sleep(queue.RepeatPauseMax)
		q.End(take(t, q, e.Key), queue.BackOff(queue.AttachLane, time.Second))
		time.Sleep(time.Second)
		q.End(take(t, q, e.Key), queue.Requeue(queue.AttachLane))
		take(t, q, e.Key)
	})
}

func TestWorkThatPausesBeforeItIsRepeatedIsStillWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		q := open(2, 0, true)
		runs := repeating(ctx, q, queue.DetachLane)
		q.Add(queue.AttachmentKey("detach"), queue.DetachLane, only("v", "a"))
		if got := runs(); got != 2 {
			t.Fatalf("%d runs at once, want 2", got)
		}
		q.Add(queue.AttachmentKey("attach"), queue.AttachLane, only("v", "b"))
		synctest.Wait()
		if v := look(t, q, "attach"); v.Wait.Kind != queue.WaitDetach || v.Wait.Detach.Name != "detach" {
			t.Errorf("%+v, want it to wait for the detach", v)
		}
	})
}

// Otherwise the first detach after many failed attaches would wait as long as the next attach.
func TestFailuresOfAnAttachAreNotThoseOfTheDetach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(1, 0, true)
		e := taken(t, q, "va", queue.AttachLane, only("v", "n"))
		fail := func(op attach.Operation) int { return q.Failed(e, op, "no", diagnosis.Cause{}) }
		for i := range 5 {
			if n := fail(attach.Attaching); n != i+1 {
				t.Errorf("%d failures in a row, want %d", n, i+1)
			}
		}
		time.Sleep(time.Hour)
		if n := fail(attach.Detaching); n != 1 || !e.Retries.Since.Equal(time.Now()) {
			t.Errorf("%d failed detaches in a row since %v, want 1 since now", n, e.Retries.Since)
		}
		if n := fail(attach.Attaching); n != 1 {
			t.Errorf("%d failed attaches in a row, want 1", n)
		}
	})
}
