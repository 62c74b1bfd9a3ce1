package hub

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// workshop runs a queue in virtual time: each item takes as long as its call says.
type workshop struct {
	queue   *queue
	calls   map[string]call // by key name
	ended   map[string]time.Duration
	began   map[string]time.Duration
	order   []string
	flying  [laneCount]int
	most    [laneCount]int
	mostAll int
	start   time.Time
}

type call struct {
	volume string
	node   string // "": the call must be the only one for the volume
	takes  time.Duration
	again  time.Duration // how long after a failure it is tried again
	tries  int           // of which all but the last fail; 0: the first succeeds
}

// openWorkshop runs a workshop inside a synctest bubble until the test's context ends.
func openWorkshop(ctx context.Context, workers int) *workshop {
	w := &workshop{queue: newQueue(workers), calls: map[string]call{}, start: time.Now(),
		ended: map[string]time.Duration{}, began: map[string]time.Duration{}}
	w.queue.Open()
	go w.queue.run(ctx, func(it *item) { go w.work(it) })
	return w
}

func (w *workshop) add(name string, l lane, c call) {
	w.queue.mu.Lock()
	w.calls[name] = c
	w.queue.mu.Unlock()
	w.queue.Add(workKey{attachmentWork, name}, l)
}

func (w *workshop) work(it *item) {
	w.queue.mu.Lock()
	c, l := w.calls[it.key.name], it.lane
	w.queue.mu.Unlock()
	if c.volume == "" {
		c.volume = it.key.name
	}
	hasTurn := c.node == "" && w.queue.TakeTurn(it, c.volume) || c.node != "" && w.queue.ShareTurn(it, c.volume, c.node)
	if !hasTurn {
		return
	}
	w.queue.mu.Lock()
	w.began[it.key.name] = time.Since(w.start)
	w.flying[l]++
	w.most[l] = max(w.most[l], w.flying[l])
	w.mostAll = max(w.mostAll, w.flying[attachLane]+w.flying[detachLane])
	w.queue.mu.Unlock()
	time.Sleep(c.takes) // the length of the call, in virtual time
	w.queue.mu.Lock()
	w.flying[l]--
	w.ended[it.key.name] = time.Since(w.start)
	w.order = append(w.order, it.key.name)
	c.tries--
	w.calls[it.key.name] = c
	w.queue.mu.Unlock()
	if c.tries > 0 {
		w.queue.DoneFor(it, l, c.again)
		return
	}
	w.queue.Done(it)
}

// finish lets virtual time pass until there is nothing left to do.
func (w *workshop) finish() {
	for {
		synctest.Wait()
		w.queue.mu.Lock()
		left := len(w.queue.items)
		w.queue.mu.Unlock()
		if left == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (w *workshop) last(prefix string, count int) time.Duration {
	var last time.Duration
	for i := range count {
		last = max(last, w.ended[fmt.Sprintf("%s%d", prefix, i)])
	}
	return last
}

func inBubble(t *testing.T, workers int, f func(w *workshop)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		f(openWorkshop(ctx, workers))
	})
}

func TestBurstOfSlowDetachesDoesNotDelayAttaches(t *testing.T) {
	inBubble(t, 20, func(w *workshop) {
		for i := range 500 {
			w.add(fmt.Sprintf("detach%d", i), detachLane, call{takes: time.Minute})
		}
		synctest.Wait()
		for i := range 20 {
			w.add(fmt.Sprintf("attach%d", i), attachLane, call{takes: time.Second})
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
	inBubble(t, 4, func(w *workshop) {
		for i := range 100 {
			w.add(fmt.Sprintf("attach%d", i), attachLane, call{takes: time.Minute})
		}
		synctest.Wait()
		w.add("detach0", detachLane, call{takes: time.Second})
		w.finish()
		if got := w.ended["detach0"]; got != time.Second {
			t.Errorf("the detach ended after %v, want 1s", got)
		}
	})
}

func TestQuickCallsUseTheWorkersThatTheOtherLaneLeavesIdle(t *testing.T) {
	inBubble(t, 20, func(w *workshop) {
		for i := range 200 {
			w.add(fmt.Sprintf("attach%d", i), attachLane, call{takes: 50 * time.Millisecond})
		}
		w.finish()
		if w.most[attachLane] != 19 {
			t.Errorf("at most %d attaches at once, want all of the 20 workers but one", w.most[attachLane])
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
			inBubble(t, 20, func(w *workshop) {
				for i := range 200 {
					w.add(fmt.Sprintf("attach%d", i), attachLane, call{takes: c.takes})
					if c.detach {
						w.add(fmt.Sprintf("detach%d", i), detachLane, call{takes: c.takes})
					}
				}
				time.Sleep(175 * time.Millisecond) // quick ones have shown by then that they are
				synctest.Wait()
				if got := w.queue.view(time.Now())[attachLane]; got.running != c.workers || got.workers != c.workers {
					t.Errorf("%d of %d workers, want %d of as many", got.running, got.workers, c.workers)
				}
				w.finish()
			})
		})
	}
}

func TestQueueNeverStartsMoreThanItsWorkers(t *testing.T) {
	for _, workers := range []int{1, 2, 3, 7} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			inBubble(t, workers, func(w *workshop) {
				for i := range 40 {
					w.add(fmt.Sprintf("attach%d", i), attachLane, call{takes: 100 * time.Millisecond})
					w.add(fmt.Sprintf("detach%d", i), detachLane, call{takes: 100 * time.Millisecond})
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
	inBubble(t, 1, func(w *workshop) {
		for i := range 3 {
			w.add(fmt.Sprintf("attach%d", i), attachLane, call{takes: time.Second})
			w.add(fmt.Sprintf("detach%d", i), detachLane, call{takes: time.Second})
		}
		w.finish()
		if a, d := w.last("attach", 3), w.last("detach", 3); a+d != 11*time.Second {
			t.Errorf("the lanes ended after %v and %v, want 5s and 6s", a, d)
		}
	})
}

func TestOneCallPerVolumeAtATime(t *testing.T) {
	inBubble(t, 10, func(w *workshop) {
		for i := range 5 {
			w.add(fmt.Sprintf("attach%d", i), attachLane, call{volume: "v", takes: time.Second})
		}
		w.add("other", attachLane, call{volume: "w", takes: time.Second})
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
	inBubble(t, 10, func(w *workshop) {
		w.add("first", attachLane, call{volume: "v", takes: time.Second})
		synctest.Wait()
		w.add("second", attachLane, call{volume: "v", takes: time.Second})
		synctest.Wait()
		w.add("detach", detachLane, call{volume: "v", takes: time.Second})
		w.finish()
		if got := fmt.Sprint(w.order); got != "[first detach second]" {
			t.Errorf("order %v, want first, detach, second", got)
		}
	})
}

func TestNothingIsCalledWhileTheDriverIsAway(t *testing.T) {
	inBubble(t, 10, func(w *workshop) {
		w.queue.Shut()
		w.add("attach0", attachLane, call{takes: time.Second})
		w.add("release0", releaseLane, call{takes: time.Second})
		time.Sleep(time.Hour)
		synctest.Wait()
		if _, ok := w.began["attach0"]; ok {
			t.Error("an attach began while the driver was away")
		}
		if _, ok := w.began["release0"]; !ok {
			t.Error("a release, which needs no driver, did not begin")
		}
		w.queue.Open()
		w.finish()
		if got := w.began["attach0"]; got != time.Hour {
			t.Errorf("the attach began after %v, want at once when the driver was back, after 1h", got)
		}
	})
}

func TestAddCutsTheDelayOfAnItemAndMovesItsLane(t *testing.T) {
	q, key := newQueue(10), workKey{attachmentWork, "va"}
	q.Open()
	q.Add(key, attachLane)
	it, _ := q.take(time.Now())
	if it == nil {
		t.Fatal("the item was not taken")
	}
	q.DoneFor(it, attachLane, time.Hour)
	if it.state != delayed {
		t.Fatalf("state %v, want delayed", it.state)
	}
	q.Add(key, detachLane)
	if it.state != waiting || it.lane != detachLane {
		t.Errorf("state %v in lane %v, want waiting in detach", it.state, it.lane)
	}
}

func TestWhatHasToWaitForADetachDoesSoUnlessThatBacksOff(t *testing.T) {
	for name, c := range map[string]struct {
		delay func(q *queue, it *item)
		want  bool
	}{
		"came at a bad moment": {func(q *queue, it *item) { q.Postpone(it, time.Hour) }, true},
		"backs off":            {func(q *queue, it *item) { q.DoneFor(it, detachLane, time.Hour) }, false},
		"backs off, after a bad moment": {func(q *queue, it *item) {
			q.Postpone(it, 0)
			if again, _ := q.take(time.Now()); again != it {
				t.Fatal("it was not taken again")
			}
			q.DoneFor(it, detachLane, time.Hour)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			q := newQueue(10)
			q.Open()
			first := workKey{attachmentWork, "detach"}
			q.Add(first, detachLane)
			detach, _ := q.take(time.Now())
			c.delay(q, detach)
			q.Add(workKey{attachmentWork, "attach"}, attachLane)
			attach, _ := q.take(time.Now())
			if got := q.WaitFor(attach, first); got != c.want {
				t.Errorf("waits: %v, want %v", got, c.want)
			}
			if v, _ := q.look(attach.key); v.behind.name != map[bool]string{true: "detach"}[c.want] {
				t.Errorf("it is shown to wait for %q", v.behind.name)
			}
			q.Add(attach.key, attachLane) // something has changed
			if v, _ := q.look(attach.key); v.behind.name != "" {
				t.Errorf("it waits for nothing, and is shown to wait for %q", v.behind.name)
			}
		})
	}
}

func TestDelayedItemRunsWhenItIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		q := newQueue(1)
		q.Open()
		runs := make(chan time.Time)
		go q.run(ctx, func(it *item) {
			go func() {
				runs <- time.Now()
				q.DoneFor(it, attachLane, 3*time.Second)
			}()
		})
		q.Add(workKey{attachmentWork, "va"}, attachLane)
		first, second := <-runs, <-runs
		if got := second.Sub(first); got != 3*time.Second {
			t.Errorf("ran again after %v, want 3s", got)
		}
		q.Hurry(workKey{attachmentWork, "va"})
		if got := (<-runs).Sub(second); got != 0 {
			t.Errorf("ran again %v after it was hurried, want at once", got)
		}
	})
}

func TestRetriesAfterAnOutageAreSpread(t *testing.T) {
	inBubble(t, 40, func(w *workshop) {
		w.add("first", attachLane, call{takes: time.Millisecond})
		synctest.Wait()
		w.queue.Shut()
		for i := range 400 {
			w.add(fmt.Sprintf("attach%d", i), attachLane, call{takes: 100 * time.Millisecond})
		}
		time.Sleep(time.Hour)
		w.queue.Open()
		for second, want := range []int{5, 10, 20, 40} {
			w.queue.mu.Lock()
			w.most = [laneCount]int{}
			w.queue.mu.Unlock()
			time.Sleep(999 * time.Millisecond)
			synctest.Wait()
			w.queue.mu.Lock()
			if got := w.most[attachLane]; got > want || got < want/2 {
				t.Errorf("second %d after the driver came back: %d calls at once, want %d at most", second, got, want)
			}
			w.queue.mu.Unlock()
			time.Sleep(time.Millisecond)
		}
		w.finish()
		if len(w.order) != 401 {
			t.Errorf("%d items ran, want 401", len(w.order))
		}
	})
}

func TestDriftWorkComesLast(t *testing.T) {
	inBubble(t, 2, func(w *workshop) {
		w.queue.Shut()
		for i := range 3 {
			w.add(fmt.Sprintf("drift%d", i), driftLane, call{takes: time.Second})
			w.add(fmt.Sprintf("attach%d", i), attachLane, call{takes: time.Second})
			w.add(fmt.Sprintf("detach%d", i), detachLane, call{takes: time.Second})
		}
		w.queue.Open()
		w.finish()
		var first time.Duration = time.Hour
		for i := range 3 {
			first = min(first, w.began[fmt.Sprintf("drift%d", i)])
		}
		if last := max(w.last("attach", 3), w.last("detach", 3)); first < last-time.Second {
			t.Errorf("drift work began after %v, attaches and detaches ended after %v", first, last)
		}
	})
}

// repeating runs a queue whose workers ask for another run at once, up to a thousand times. It
// returns how many runs there were.
func repeating(ctx context.Context, q *queue) func() int {
	q.Open()
	runs := 0
	go q.run(ctx, func(it *item) {
		q.mu.Lock()
		runs++
		enough := runs >= 1000
		q.mu.Unlock()
		if enough {
			q.Done(it)
			return
		}
		q.DoneFor(it, it.lane, 0)
	})
	return func() int {
		synctest.Wait()
		q.mu.Lock()
		defer q.mu.Unlock()
		return runs
	}
}

func TestAWorkerCannotRepeatItsWorkWithoutAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		q, key := newQueue(1), workKey{attachmentWork, "v"}
		runs := repeating(ctx, q)
		q.Add(key, attachLane)
		if got := runs(); got != 2 {
			t.Errorf("%d runs at once, want 2", got)
		}
		time.Sleep(time.Minute)
		before := runs()
		if before > 40 {
			t.Errorf("%d runs in a minute, want a few", before)
		}
		for name, ask := range map[string]func(){
			"Add":   func() { q.Add(key, attachLane) },
			"Renew": func() { q.Renew(key, attachLane) },
			"Hurry": func() { q.Hurry(key) },
		} {
			time.Sleep(repeatPauseMax / 2)
			before = runs()
			ask()
			if got := runs() - before; got != 2 {
				t.Errorf("%d runs at once after %s, want 2: what is new may help", got, name)
			}
		}
	})
}

func TestWorkThatPausesBeforeItIsRepeatedIsStillWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		q, key := newQueue(2), workKey{attachmentWork, "v"}
		runs := repeating(ctx, q)
		q.Add(key, detachLane)
		runs()
		follower := &item{key: workKey{attachmentWork, "w"}, state: running}
		follower.link = q.lanes.load[attachLane].running.PushBack(follower)
		if !q.WaitFor(follower, key) {
			t.Error("what waits for it does not")
		}
	})
}
