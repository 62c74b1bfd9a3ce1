package volume_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

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

func TestDetachGoesBeforeAttachesOfTheSameNodeThatWait(t *testing.T) {
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
					w.add(fmt.Sprintf("detach%d", i), volume.DetachLane, call{volume: "v", takes: timeout, again: backoff, tries: tries})
				}
				synctest.Wait()
				w.add("attach", volume.AttachLane, call{volume: "v", takes: time.Second})
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
				if got := look(t, table, "attach"); got.State != volume.Ready || got.Wait.Kind != volume.WaitNothing && got.Wait.Kind != volume.WaitWorker {
					t.Errorf("%+v, want it to wait for no other work", got)
				}
			})
		})
	}
}
