package queue_test

import (
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

func TestBurstOfSlowDetachesDoesNotDelayAttaches(t *testing.T) {
	inBubble(t, 20, func(t *testing.T, w *workshop) {
		for i := range 500 {
			w.add(fmt.Sprintf("detach%d", i), queue.DetachLane, call{takes: time.Minute})
		}
		synctest.Wait()
		for i := range 20 {
			w.add(fmt.Sprintf("attach%d", i), queue.AttachLane, call{takes: time.Second})
		}
		w.finish()
		// Half of the 20 workers: two rounds.
		if got := w.last("attach", 20); got != 2*time.Second {
			t.Errorf("the last attach ended after %v, want 2s", got)
		}
		if w.mostAll != 20 {
			t.Errorf("%d calls at once, want 20", w.mostAll)
		}
	})
}

func TestBurstOfSlowAttachesDoesNotDelayDetaches(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, w *workshop) {
		for i := range 100 {
			w.add(fmt.Sprintf("attach%d", i), queue.AttachLane, call{takes: time.Minute})
		}
		synctest.Wait()
		w.add("detach0", queue.DetachLane, call{takes: time.Second})
		w.finish()
		if got := w.last("detach", 1); got != time.Second {
			t.Errorf("the detach ended after %v, want 1s", got)
		}
	})
}

func TestQuickCallsUseTheWorkersThatTheOtherLaneLeavesIdle(t *testing.T) {
	inBubble(t, 20, func(t *testing.T, w *workshop) {
		for i := range 200 {
			w.add(fmt.Sprintf("attach%d", i), queue.AttachLane, call{takes: 50 * time.Millisecond})
		}
		w.finish()
		if w.most[queue.AttachLane] != 19 {
			t.Errorf("at most %d attaches at once, want all of the 20 workers but one", w.most[queue.AttachLane])
		}
	})
}

// Runs that come to no call take no time at all. They are no measure of the driver's pace.
func TestRunsWithoutACallDoNotMakeALaneQuick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(20, 0, true)
		for i := range 10 {
			q.End(taken(t, q, fmt.Sprint("nothing to do", i), queue.AttachLane, queue.Destination{}), queue.Finished)
		}
		if got := q.Workers(queue.AttachLane, time.Now()); got != 10 {
			t.Errorf("%d workers for a lane that has made no call, want 10", got)
		}
	})
}

// What is shown as the workers of a lane is what it can come to: else nobody sees that a
// lane has all that it gets.
func TestALaneThatHasAllItsWorkersShowsSo(t *testing.T) {
	for name, c := range map[string]struct {
		takes   time.Duration
		detach  bool // there is work in the other lane too
		workers int
	}{
		"slow calls":              {2 * time.Second, false, 10},
		"slow calls, both lanes":  {2 * time.Second, true, 10},
		"quick calls":             {50 * time.Millisecond, false, 19},
		"quick calls, both lanes": {50 * time.Millisecond, true, 10},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 20, func(t *testing.T, w *workshop) {
				for i := range 200 {
					w.add(fmt.Sprintf("attach%d", i), queue.AttachLane, call{takes: c.takes})
					if c.detach {
						w.add(fmt.Sprintf("detach%d", i), queue.DetachLane, call{takes: c.takes})
					}
				}
				time.Sleep(175 * time.Millisecond) // quick ones have shown by then that they are
				synctest.Wait()
				all, _ := w.queue.All()
				maps.DeleteFunc(all, func(_ queue.Key, p queue.Progress) bool {
					return p.Lane != queue.AttachLane || p.State != queue.Running
				})
				if workers := w.queue.Workers(queue.AttachLane, time.Now()); len(all) != c.workers || workers != c.workers {
					t.Errorf("%d of %d workers, want %d of as many", len(all), workers, c.workers)
				}
				w.finish()
			})
		})
	}
}

func TestQueueNeverStartsMoreThanItsWorkers(t *testing.T) {
	for _, workers := range []int{1, 2, 3, 7} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			inBubble(t, workers, func(t *testing.T, w *workshop) {
				for i := range 40 {
					w.add(fmt.Sprintf("attach%d", i), queue.AttachLane, call{takes: 100 * time.Millisecond})
					w.add(fmt.Sprintf("detach%d", i), queue.DetachLane, call{takes: 100 * time.Millisecond})
				}
				w.finish()
				if w.mostAll != workers {
					t.Errorf("%d calls at once, want %d", w.mostAll, workers)
				}
				if len(w.order) != 80 {
					t.Errorf("%d items ran, want 80", len(w.order))
				}
			})
		})
	}
}

func TestOneWorkerServesBothLanesInTurn(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, w *workshop) {
		for i := range 3 {
			w.add(fmt.Sprintf("attach%d", i), queue.AttachLane, call{takes: time.Second})
			w.add(fmt.Sprintf("detach%d", i), queue.DetachLane, call{takes: time.Second})
		}
		w.finish()
		if a, d := w.last("attach", 3), w.last("detach", 3); a+d != 11*time.Second {
			t.Errorf("the lanes ended after %v and %v, want 5s and 6s", a, d)
		}
	})
}

func TestNothingIsCalledWhileTheDriverIsAway(t *testing.T) {
	inBubble(t, 10, func(t *testing.T, w *workshop) {
		w.queue.Shut()
		w.add("attach0", queue.AttachLane, call{takes: time.Second})
		w.add("release0", queue.FinalizerLane, call{takes: time.Second})
		time.Sleep(time.Hour)
		synctest.Wait()
		if _, ok := w.beganAt("attach0"); ok {
			t.Error("an attach began while the driver was away")
		}
		if _, ok := w.beganAt("release0"); !ok {
			t.Error("a release, which needs no driver, did not begin")
		}
		w.queue.Open()
		w.finish()
		if got, _ := w.beganAt("attach0"); got != time.Hour {
			t.Errorf("the attach began after %v, want at once when the driver was back, after 1h", got)
		}
	})
}

func TestRetriesAfterAnOutageAreSpread(t *testing.T) {
	inBubble(t, 40, func(t *testing.T, w *workshop) {
		w.add("first", queue.AttachLane, call{takes: time.Millisecond})
		synctest.Wait()
		w.queue.Shut()
		for i := range 400 {
			w.add(fmt.Sprintf("attach%d", i), queue.AttachLane, call{takes: 100 * time.Millisecond})
		}
		time.Sleep(time.Hour)
		w.queue.Open()
		for second, want := range []int{5, 10, 20, 40} {
			w.mu.Lock()
			w.most = [queue.LaneCount]int{}
			w.mu.Unlock()
			time.Sleep(999 * time.Millisecond)
			synctest.Wait()
			w.mu.Lock()
			if got := w.most[queue.AttachLane]; got > want || got < want/2 {
				t.Errorf("second %d after the driver came back: %d calls at once, want %d at most", second, got, want)
			}
			w.mu.Unlock()
			time.Sleep(time.Millisecond)
		}
		w.finish()
		if len(w.order) != 401 {
			t.Errorf("%d items ran, want 401", len(w.order))
		}
	})
}

func TestDriftWorkComesLast(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, w *workshop) {
		w.queue.Shut()
		for i := range 3 {
			w.add(fmt.Sprintf("drift%d", i), queue.DriftLane, call{takes: time.Second})
			w.add(fmt.Sprintf("attach%d", i), queue.AttachLane, call{takes: time.Second})
			w.add(fmt.Sprintf("detach%d", i), queue.DetachLane, call{takes: time.Second})
		}
		w.queue.Open()
		w.finish()
		first := time.Hour
		for i := range 3 {
			at, _ := w.beganAt(fmt.Sprintf("drift%d", i))
			first = min(first, at)
		}
		if last := max(w.last("attach", 3), w.last("detach", 3)); first < last-time.Second {
			t.Errorf("drift work began after %v, attaches and detaches ended after %v", first, last)
		}
	})
}

func TestFourFinalizersAtMostAreRemovedAtOnce(t *testing.T) {
	inBubble(t, 100, func(t *testing.T, w *workshop) {
		for i := range 20 {
			w.add(fmt.Sprintf("release%d", i), queue.FinalizerLane, call{takes: time.Second})
		}
		w.finish()
		if got := w.most[queue.FinalizerLane]; got != 4 {
			t.Errorf("%d at once, want 4", got)
		}
	})
}

func TestItemWaitsForAWorkerOnlyIfNoneIsFree(t *testing.T) {
	q := open(4, 0, true)
	waits := func(when, name string, want queue.WaitKind) {
		t.Helper()
		if got := look(t, q, name); got.State != queue.Ready || got.Wait.Kind != want {
			t.Errorf("%s: %+v, want the wait %v", when, got, want)
		}
	}
	add := func(name string, l queue.Lane) { q.Add(queue.AttachmentKey(name), l, only(name, "n")) }
	add("a", queue.AttachLane)
	waits("all workers are free", "a", queue.WaitNothing)
	for _, name := range []string{"b", "c", "d"} {
		add(name, queue.AttachLane)
	}
	if got := started(q); len(got) != 2 {
		t.Fatalf("%v started, want half of the workers", got)
	}
	waits("the share of the lane is busy", "c", queue.WaitWorker)
	add("x", queue.DetachLane)
	waits("the other half is free", "x", queue.WaitNothing)
	q.Shut()
	waits("the driver cannot be called", "x", queue.WaitWorker)
}

func TestViewSaysSinceWhenEachItemWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue.NewQueue()
		q.Begin()
		q.SetLimits(queue.Limits{Workers: 4, Pause: aMinute})
		if _, complete := q.All(); complete {
			t.Error("the q knows all work before the driver could be called")
		}
		asked := time.Now()
		q.Add(queue.AttachmentKey("a"), queue.AttachLane, only("a", "n"))
		time.Sleep(time.Minute)
		q.Add(queue.AttachmentKey("b"), queue.AttachLane, only("b", "n"))
		q.Add(queue.FinalizerKey("pv"), queue.FinalizerLane, queue.Destination{})
		all, _ := q.All()
		if a, b := all[queue.AttachmentKey("a")], all[queue.AttachmentKey("b")]; len(all) != 3 || !a.Required.Equal(asked) || !b.Required.Equal(time.Now()) {
			t.Errorf("%+v, want three items, the first since %s", all, asked)
		}
		q.Open()
		q.Shut()
		if _, complete := q.All(); !complete {
			t.Error("the q knows not all work after the driver could be called")
		}
		q.Close()
		if all, complete := q.All(); complete || len(all) > 0 {
			t.Error("the q knows all work after the term")
		}
	})
}
