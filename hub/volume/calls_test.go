package volume_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

func TestOneCallPerVolumeAtATime(t *testing.T) {
	inBubble(t, 10, func(t *testing.T, w *workshop) {
		for i := range 5 {
			w.add(fmt.Sprintf("attach%d", i), volume.AttachLane, call{volume: "v", takes: time.Second})
		}
		w.add("other", volume.AttachLane, call{volume: "w", takes: time.Second})
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
		w.add("first", volume.AttachLane, call{volume: "v", takes: time.Second})
		synctest.Wait()
		w.add("second", volume.AttachLane, call{volume: "v", takes: time.Second})
		synctest.Wait()
		w.add("detach", volume.DetachLane, call{volume: "v", takes: time.Second})
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
				w.table.SetLimits(20, 0, parallel)
				for i := range 3 {
					node := fmt.Sprintf("node%d", i)
					w.add(fmt.Sprintf("attach%d", i), volume.AttachLane, call{volume: "v", node: node, takes: time.Second})
					w.add(fmt.Sprintf("detach%d", i), volume.DetachLane, call{volume: "v", node: node, takes: time.Second})
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
		w.table.SetLimits(20, 0, true)
		w.add("attach0", volume.AttachLane, call{volume: "v", node: "node0", takes: time.Second})
		w.add("attach1", volume.AttachLane, call{volume: "v", node: "node1", takes: 3 * time.Second})
		synctest.Wait()
		w.add("only", volume.AttachLane, call{volume: "v", takes: time.Second})
		// Calls on other nodes that come one after the other, and would never leave a gap.
		for i := range 10 {
			synctest.Wait()
			w.add(fmt.Sprintf("later%d", i), volume.AttachLane, call{volume: "v", node: fmt.Sprintf("node%d", i+2), takes: 2 * time.Second})
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
	inBubble(t, 20, func(t *testing.T, w *workshop) {
		w.table.SetLimits(20, 0, true)
		w.add("first", volume.AttachLane, call{volume: "v", node: "node", takes: time.Second})
		synctest.Wait()
		w.add("second", volume.AttachLane, call{volume: "v", node: "node", takes: time.Second})
		synctest.Wait()
		w.add("detach", volume.DetachLane, call{volume: "v", node: "node", takes: time.Second})
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
				w.add(fmt.Sprintf("detach%d", i), volume.DetachLane, call{volume: "v", node: "n", takes: timeout, again: backoff, tries: tries})
			}
			synctest.Wait()
			w.add("attach", volume.AttachLane, call{volume: "v", node: "n", takes: time.Second})
			w.finish()
			// After the detach in flight each of them goes first once.
			if got := w.began["attach"]; got != 4*timeout {
				t.Errorf("the attach began after %v, want %v", got, 4*timeout)
			}
		})
	})
	t.Run("of a single-node volume", func(t *testing.T) {
		inBubble(t, 10, func(t *testing.T, w *workshop) {
			w.add("detach", volume.DetachLane, call{volume: "v", takes: timeout, again: backoff, tries: tries})
			synctest.Wait()
			w.add("attach", volume.AttachLane, call{volume: "v", takes: time.Second})
			w.finish()
			if got := w.began["attach"]; got != timeout {
				t.Errorf("the attach began after %v, want %v: when the detach backs off", got, timeout)
			}
		})
	})
}

// waits is what an attach of a single-node volume does after a detach elsewhere has gone through some
// runs: it reports whether it waits for the detach.
func TestWhatHasToWaitForADetachDoesSoUnlessThatBacksOff(t *testing.T) {
	for name, c := range map[string]struct {
		delay func(t *testing.T, table *volume.Table, e *volume.Entry)
		want  bool
	}{
		"in flight":            {func(t *testing.T, table *volume.Table, e *volume.Entry) {}, true},
		"came at a bad moment": {func(t *testing.T, table *volume.Table, e *volume.Entry) { table.Postpone(e, e.Lane(), time.Hour) }, true},
		"due again": {func(t *testing.T, table *volume.Table, e *volume.Entry) {
			table.ShutLanes()
			table.DoneFor(e, volume.DetachLane, 0)
		}, true},
		"pauses after it was repeated": {func(t *testing.T, table *volume.Table, e *volume.Entry) {
			table.DoneFor(e, volume.DetachLane, 0)
			table.DoneFor(take(t, table, e.Key), volume.DetachLane, 0)
		}, true},
		"done": {func(t *testing.T, table *volume.Table, e *volume.Entry) { table.Done(e) }, false},
		"backs off": {func(t *testing.T, table *volume.Table, e *volume.Entry) {
			table.DoneFor(e, volume.DetachLane, time.Hour)
		}, false},
		"backs off, after a bad moment": {func(t *testing.T, table *volume.Table, e *volume.Entry) {
			table.Postpone(e, e.Lane(), 0)
			table.DoneFor(take(t, table, e.Key), volume.DetachLane, time.Hour)
		}, false},
		"is an attach now": {func(t *testing.T, table *volume.Table, e *volume.Entry) {
			table.Postpone(e, e.Lane(), time.Hour)
			table.ShutLanes()
			table.Add(e.Key, volume.AttachLane, only("v", "a"))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := openTable(10, 0, true)
				detach := taken(t, table, "detach", volume.DetachLane, only("v", "a"))
				c.delay(t, table, detach)
				table.Add(volume.ClaimKey("attach"), volume.AttachLane, only("v", "b"))
				got := look(t, table, "attach")
				if waits := got.Wait == (volume.Wait{Kind: volume.WaitDetach, Detach: detach.Key}); waits != c.want {
					t.Errorf("%+v; waits for the detach: %v, want %v", got, waits, c.want)
				}
				table.Add(volume.ClaimKey("attach"), volume.AttachLane, only("w", "b")) // it is another volume now
				if got := look(t, table, "attach"); got.Wait != (volume.Wait{}) {
					t.Errorf("%+v, want it to wait for nothing", got)
				}
			})
		})
	}
}

// The worker finds what it has to wait for: where the volume is was not known when the entry began.
func TestWorkerThatFindsADetachLeavesItsEntryAndTheEntryRunsAnewWhenThatEnds(t *testing.T) {
	table := openTable(10, 0, true)
	detach := taken(t, table, "detach", volume.DetachLane, only("v", "a"))
	attach := taken(t, table, "attach", volume.AttachLane, volume.Place{})
	if table.Reserve(attach, only("v", "b")) {
		t.Fatal("the attach goes on beside the detach")
	}
	if v := look(t, table, "attach"); v.State != volume.Blocked || v.Wait.Detach != detach.Key {
		t.Errorf("%+v, want it to wait for the detach", v)
	}
	if got := table.Lanes(time.Now())[volume.AttachLane].Running; got != 0 {
		t.Errorf("%d attaches are counted as running, want none", got)
	}
	table.Done(detach)
	take(t, table, attach.Key)
	if !table.Reserve(attach, only("v", "b")) {
		t.Error("it waits, and nothing else is to be done")
	}
}

// A detach comes while the worker reads what it needs for its call.
func TestCallThatHasNotBegunMakesWayForADetachThatComes(t *testing.T) {
	table := openTable(10, 0, true)
	attach := taken(t, table, "attach", volume.AttachLane, only("v", "b"))
	table.Add(volume.ClaimKey("detach"), volume.DetachLane, only("v", "a"))
	if got := started(table); len(got) > 0 {
		t.Fatalf("%v began beside the attach", got)
	}
	if table.Reserve(attach, only("v", "b")) {
		t.Fatal("the attach goes first")
	}
	detach := take(t, table, volume.ClaimKey("detach"))
	table.Done(detach)
	take(t, table, attach.Key)
}

func TestWorkerMayAskForItsPlaceAsOftenAsItLikes(t *testing.T) {
	table := openTable(10, 0, true)
	attach := taken(t, table, "attach", volume.AttachLane, only("v", "b"))
	table.Add(volume.ClaimKey("next"), volume.AttachLane, only("v", "c"))
	for range 3 {
		if !table.Reserve(attach, only("v", "b")) {
			t.Fatal("it has to wait for what came after it")
		}
	}
}

// A claim has its volume at its previous target still: it is called there first.
func TestEntryThatMovesToAnotherNodeOfItsVolumeLetsNobodyGetBetween(t *testing.T) {
	table := openTable(10, 0, true)
	e := taken(t, table, "e", volume.AttachLane, only("v", "a"))
	if !table.Reserve(e, only("v", "b")) {
		t.Fatal("it has to wait for nobody")
	}
	table.Add(volume.ClaimKey("next"), volume.AttachLane, only("v", "c"))
	if got := started(table); len(got) > 0 {
		t.Errorf("%v began beside it", got)
	}
	table.Done(e)
	take(t, table, volume.ClaimKey("next"))
}

func TestEntryThatMovesToAnotherVolumeLetsThoseGoThatWaitedForIt(t *testing.T) {
	for name, blocked := range map[string]bool{"and goes on": false, "and has to wait there": true} {
		t.Run(name, func(t *testing.T) {
			table := openTable(10, 0, true)
			if blocked {
				taken(t, table, "other", volume.AttachLane, only("w", "a"))
			}
			e := taken(t, table, "e", volume.AttachLane, only("v", "a"))
			table.Add(volume.ClaimKey("next"), volume.AttachLane, only("v", "c"))
			if got := table.Reserve(e, only("w", "b")); got == blocked {
				t.Fatalf("it goes on: %v", got)
			}
			if got := started(table); !slices.Equal(got, []string{"next"}) {
				t.Errorf("%v were started, want the next of the volume that it left", got)
			}
		})
	}
}

func TestOthersGoOnWhenTheOneThatTheyLetGoFirstWaitsNoMore(t *testing.T) {
	table := openTable(100, 0, true)
	taken(t, table, "on a", volume.AttachLane, shared("v", "a"))
	table.Add(volume.ClaimKey("only"), volume.AttachLane, only("v", "x"))
	table.Add(volume.ClaimKey("beside"), volume.AttachLane, shared("v", "b"))
	if got := started(table); len(got) > 0 {
		t.Fatalf("%v were started, want none", got)
	}
	table.Add(volume.ClaimKey("only"), volume.AttachLane, only("w", "x")) // it is another volume now
	if got := started(table); !slices.Contains(got, "beside") {
		t.Errorf("%v were started, want the one beside among them", got)
	}
}

func TestAllThatWaitRunOnceWhenCallsMayRunSideBySide(t *testing.T) {
	table := openTable(100, 0, false)
	taken(t, table, "on a", volume.AttachLane, shared("v", "a"))
	for _, node := range []string{"b", "c", "a"} {
		table.Add(volume.ClaimKey("second on "+node), volume.AttachLane, shared("v", node))
	}
	if got := started(table); len(got) > 0 {
		t.Fatalf("%v were started, want none", got)
	}
	table.SetLimits(100, 0, true)
	table.SetLimits(100, 0, true)
	if got := started(table); !slices.Equal(got, []string{"second on b", "second on c"}) {
		t.Errorf("%v were started, want those for other nodes, once each", got)
	}
}

func TestThoseThatHaveNotBegunWaitWhenCallsMayNoLongerRunSideBySide(t *testing.T) {
	table := openTable(100, 0, true)
	first := taken(t, table, "only", volume.AttachLane, only("v", "x"))
	for _, node := range []string{"a", "b", "c"} {
		table.Add(volume.ClaimKey("on "+node), volume.AttachLane, shared("v", node))
	}
	table.Done(first) // the others may run now, and no worker has taken them
	table.SetLimits(100, 0, false)
	for _, want := range []string{"on a", "on b", "on c"} {
		e := take(t, table, volume.ClaimKey(want))
		if got := started(table); len(got) > 0 {
			t.Errorf("%v began beside %s", got, want)
		}
		table.Done(e)
	}
}

func TestItemThatNeedsAnotherTurnThanItHasLetsOthersGo(t *testing.T) {
	table := openTable(100, 0, true)
	it := taken(t, table, "it", volume.AttachLane, only("v", "a"))
	table.Add(volume.ClaimKey("other"), volume.AttachLane, shared("v", "b"))
	if got := started(table); len(got) > 0 {
		t.Fatalf("%v were started, want none", got)
	}
	table.Reserve(it, shared("v", "a")) // from now on it needs the volume on one node only
	if got := started(table); !slices.Contains(got, "other") {
		t.Errorf("%v were started, want the other one", got)
	}
	if table.Reserve(it, only("v", "a")) {
		t.Error("it has the volume for itself beside the other one")
	}
}

// The PersistentVolume says MULTI_NODE now, and the volume was published in a single-node mode: the
// modes conflict, and the calls go one after the other.
func TestVolumeWhoseModesConflictCountsAsSingleNode(t *testing.T) {
	for nodes, want := range map[attach.NodeMode]bool{attach.SingleNode: false, attach.UnknownNodes: true, attach.MultiNode: true} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("published %v, late %v", nodes, late), func(t *testing.T) {
				table := openTable(10, 0, true)
				target := attach.Target{VolumeHandle: "v", NodeID: "a"}
				c := table.Open(attachment("published", "1"))
				publish(table, c, attach.Record{Target: target, Nodes: nodes})
				taken(t, table, "other", volume.AttachLane, shared("v", "b"))
				first := shared("v", "a")
				if late {
					first = volume.Place{}
				}
				table.Add(volume.ClaimKey("published"), volume.AttachLane, first)
				e := table.Take(time.Now())
				if got := e != nil && (!late || table.Reserve(e, shared("v", "a"))); got != want {
					t.Errorf("runs beside another: %v, want %v", got, want)
				}
			})
		}
	}
}
