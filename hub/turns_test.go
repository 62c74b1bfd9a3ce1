package hub

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestCallsOfAMultiNodeVolumeRunSideBySideOnDifferentNodes(t *testing.T) {
	for parallel, want := range map[bool]time.Duration{true: 2 * time.Second, false: 6 * time.Second} {
		t.Run(fmt.Sprintf("parallel %v", parallel), func(t *testing.T) {
			inBubble(t, 20, func(w *workshop) {
				w.queue.SetParallel(parallel)
				for i := range 3 {
					node := fmt.Sprintf("node%d", i)
					w.add(fmt.Sprintf("attach%d", i), attachLane, call{volume: "v", node: node, takes: time.Second})
					w.add(fmt.Sprintf("detach%d", i), detachLane, call{volume: "v", node: node, takes: time.Second})
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
	inBubble(t, 20, func(w *workshop) {
		w.queue.SetParallel(true)
		w.add("attach0", attachLane, call{volume: "v", node: "node0", takes: time.Second})
		w.add("attach1", attachLane, call{volume: "v", node: "node1", takes: 3 * time.Second})
		synctest.Wait()
		w.add("only", attachLane, call{volume: "v", takes: time.Second})
		// Calls on other nodes that come one after the other, and would never leave a gap.
		for i := range 10 {
			synctest.Wait()
			w.add(fmt.Sprintf("later%d", i), attachLane, call{volume: "v", node: fmt.Sprintf("node%d", i+2), takes: 2 * time.Second})
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

func TestTurnGoesToADetachOfTheSameNodeFirst(t *testing.T) {
	inBubble(t, 20, func(w *workshop) {
		w.queue.SetParallel(true)
		w.add("first", attachLane, call{volume: "v", node: "node", takes: time.Second})
		synctest.Wait()
		w.add("second", attachLane, call{volume: "v", node: "node", takes: time.Second})
		synctest.Wait()
		w.add("detach", detachLane, call{volume: "v", node: "node", takes: time.Second})
		w.finish()
		if got := fmt.Sprint(w.order); got != "[first detach second]" {
			t.Errorf("order %v, want first, detach, second", got)
		}
	})
}

// A dead node: its detach hangs until its timeout, and is tried again soon after.
func TestDetachesThatAreTriedAgainDoNotKeepAnAttachWaitingForEver(t *testing.T) {
	inBubble(t, 10, func(w *workshop) {
		const timeout, backoff, tries = 2 * time.Minute, 10 * time.Second, 20
		for i := range 3 {
			w.add(fmt.Sprintf("detach%d", i), detachLane, call{volume: "v", takes: timeout, again: backoff, tries: tries})
		}
		synctest.Wait()
		w.add("attach", attachLane, call{volume: "v", takes: time.Second})
		w.finish()
		// After the detach in flight each of them goes first once.
		if got := w.began["attach"]; got != 4*timeout {
			t.Errorf("the attach began after %v, want %v", got, 4*timeout)
		}
	})
}

// holding starts items that have their turns on the volume "v" each on a node.
func holding(t *testing.T, q *queue, nodes ...string) []*item {
	t.Helper()
	var items []*item
	for _, node := range nodes {
		it := taken(t, q, "on "+node, attachLane)
		if !q.ShareTurn(it, "v", node) {
			t.Fatalf("%s has to wait", it.key.name)
		}
		items = append(items, it)
	}
	return items
}

// taken adds an item and has it run.
func taken(t *testing.T, q *queue, name string, l lane) *item {
	t.Helper()
	q.Add(workKey{attachmentWork, name}, l)
	it, _ := q.take(time.Now())
	if it == nil || it.key.name != name {
		t.Fatalf("%v was started, want %s", it, name)
	}
	return it
}

// started returns the names of all items that can start now, which then run.
func started(q *queue) []string {
	var names []string
	for {
		it, _ := q.take(time.Now())
		if it == nil {
			return names
		}
		names = append(names, it.key.name)
	}
}

func openQueue(parallel bool) *queue {
	q := newQueue(100)
	q.Open()
	q.SetParallel(parallel)
	return q
}

func TestOthersGoOnWhenTheOneThatTheyLetGoFirstWaitsNoMore(t *testing.T) {
	q := openQueue(true)
	holding(t, q, "a")
	only, beside := taken(t, q, "only", attachLane), taken(t, q, "beside", attachLane)
	if q.TakeTurn(only, "v") || q.ShareTurn(beside, "v", "b") {
		t.Fatal("the others do not wait as they should")
	}
	q.Add(only.key, detachLane) // it is to be detached instead
	if got := started(q); !slices.Contains(got, "beside") {
		t.Errorf("%v were started, want the one beside among them", got)
	}
}

func TestAllThatWaitRunOnceWhenCallsMayRunSideBySide(t *testing.T) {
	q := openQueue(false)
	holding(t, q, "a")
	for _, node := range []string{"b", "c", "a"} {
		if it := taken(t, q, "second on "+node, attachLane); q.ShareTurn(it, "v", node) {
			t.Fatalf("%s does not wait", it.key.name)
		}
	}
	q.SetParallel(true)
	q.SetParallel(true)
	if got := started(q); !slices.Equal(got, []string{"second on b", "second on c"}) {
		t.Errorf("%v were started, want those for other nodes, once each", got)
	}
}

func TestThoseThatHaveNotBegunWaitWhenCallsMayNoLongerRunSideBySide(t *testing.T) {
	q := openQueue(true)
	only := taken(t, q, "only", attachLane)
	q.TakeTurn(only, "v")
	var items []*item
	for _, node := range []string{"a", "b", "c"} {
		it := taken(t, q, "on "+node, attachLane)
		if q.ShareTurn(it, "v", node) {
			t.Fatalf("%s does not wait", it.key.name)
		}
		items = append(items, it)
	}
	q.Done(only) // they may run now, and no worker has taken them
	q.SetParallel(false)
	if got := started(q); len(got) != len(items) {
		t.Fatalf("%v were started, want all of them", got)
	}
	turns := 0
	for i, node := range []string{"a", "b", "c"} {
		if q.ShareTurn(items[i], "v", node) {
			turns++
		}
	}
	if turns != 1 {
		t.Errorf("%d have their turn at once, want one", turns)
	}
	for range items {
		running := slices.IndexFunc(items, func(it *item) bool { return it.state == running })
		if running < 0 {
			t.Fatal("none runs, and some wait")
		}
		q.Done(items[running])
		items = slices.Delete(items, running, running+1)
		started(q)
	}
}

func TestItemThatNeedsAnotherTurnThanItHasLetsOthersGo(t *testing.T) {
	q := openQueue(true)
	it := taken(t, q, "it", attachLane)
	q.TakeTurn(it, "v")
	if other := taken(t, q, "other", attachLane); q.ShareTurn(other, "v", "b") {
		t.Fatal("the other one does not wait")
	}
	if !q.ShareTurn(it, "v", "a") { // from now on it needs the volume on one node only
		t.Error("it has to wait for whom it goes along with")
	}
	if got := started(q); !slices.Equal(got, []string{"other"}) {
		t.Errorf("%v were started, want the other one", got)
	}
	if q.TakeTurn(it, "v") {
		t.Error("it has the volume for itself beside the other one")
	}
}

// Whatever comes in whatever order: calls that do not go along never run at the same time,
// and all of them run.
func TestTurnsOnVolumesKeepTheirPromiseWhateverComes(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			q := openQueue(true)
			q.SetLimits(2+random.IntN(10), random.IntN(3))
			flying, ran := map[*item]call{}, map[string]int{} // guarded by the queue's mutex
			calls := map[string]call{}
			go q.run(t.Context(), func(it *item) {
				c := calls[it.key.name]
				go func() {
					if c.node == "" && !q.TakeTurn(it, c.volume) || c.node != "" && !q.ShareTurn(it, c.volume, c.node) || !q.TakePlace(it, "place"+c.node) {
						return
					}
					q.mu.Lock()
					for _, other := range flying {
						if other.volume == c.volume && (c.node == "" || other.node == "" || other.node == c.node) {
							t.Errorf("seed %d: %+v beside %+v", seed, c, other)
						}
					}
					flying[it] = c
					ran[it.key.name]++
					again := ran[it.key.name] == 1 && len(it.key.name)%3 == 0
					q.mu.Unlock()
					time.Sleep(c.takes)
					q.mu.Lock()
					delete(flying, it)
					q.mu.Unlock()
					if again {
						q.DoneFor(it, it.lane, time.Second)
						return
					}
					q.Done(it)
				}()
			})
			for i := range 60 {
				calls[fmt.Sprintf("%0*d", i%7+1, i)] = call{volume: fmt.Sprint("v", random.IntN(2)), node: []string{"", "a", "b", "c", "d"}[random.IntN(5)], takes: time.Duration(random.IntN(3000)) * time.Millisecond}
			}
			for name := range calls {
				l := []lane{attachLane, detachLane}[random.IntN(2)]
				q.Add(workKey{attachmentWork, name}, l)
				switch random.IntN(10) {
				case 0:
					q.SetParallel(random.IntN(2) == 0)
				case 1:
					q.Add(workKey{attachmentWork, name}, attachLane+detachLane-l)
				case 2:
					q.SetLimits(2+random.IntN(10), random.IntN(3))
				}
				time.Sleep(time.Duration(random.IntN(200)) * time.Millisecond)
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			q.mu.Lock()
			defer q.mu.Unlock()
			if len(q.items) > 0 || len(q.turns) > 0 || len(q.nodes) > 0 || len(ran) != len(calls) {
				t.Errorf("seed %d: %d of %d calls have run; %d items, turns on %d volumes and places on %d nodes are left", seed, len(ran), len(calls), len(q.items), len(q.turns), len(q.nodes))
			}
		})
	}
}
