package volume_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

func TestThereIsOneEntryPerKey(t *testing.T) {
	table := openTable(10, 0, true)
	for range 3 {
		table.Add(volume.ClaimKey("a"), volume.AttachLane, only("v", "n"))
	}
	table.Add(volume.FinalizerKey("a"), volume.FinalizerLane, volume.Place{}) // another kind, another key
	if got := started(table); len(got) != 2 {
		t.Errorf("%d entries started, want one of each key", len(got))
	}
}

func TestAddEndsTheDelayOfAnEntryAndChangesItsLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := openTable(10, 0, true)
		e := taken(t, table, "va", volume.AttachLane, only("v", "n"))
		table.DoneFor(e, volume.AttachLane, time.Hour)
		if v := look(t, table, "va"); v.State != volume.Delayed || v.Due != time.Now().Add(time.Hour) {
			t.Fatalf("%+v, want it delayed for an hour", v)
		}
		table.Add(e.Key, volume.DetachLane, only("v", "n"))
		if v := look(t, table, "va"); v.State != volume.Ready || v.Lane != volume.DetachLane {
			t.Errorf("%+v, want it ready in the detach lane", v)
		}
	})
}

func TestAddMovesAnEntryThatWaitsToItsNewLaneAndVolume(t *testing.T) {
	table := openTable(10, 0, true)
	first := taken(t, table, "first", volume.AttachLane, only("v", "a"))
	table.Add(volume.ClaimKey("second"), volume.AttachLane, only("v", "b"))
	if v := look(t, table, "second"); v.State != volume.Blocked || v.Wait.Kind != volume.WaitVolume {
		t.Fatalf("%+v, want it blocked by the call in flight", v)
	}
	table.Add(volume.ClaimKey("second"), volume.DetachLane, only("w", "b"))
	take(t, table, volume.ClaimKey("second"))
	table.Done(first)
	if got := started(table); len(got) > 0 {
		t.Errorf("%v started once more", got)
	}
}

func TestEntryThatIsAddedWhileItRunsIsChangedAndRunsOnceMore(t *testing.T) {
	table := openTable(10, 0, true)
	e := taken(t, table, "va", volume.AttachLane, only("v", "n"))
	if table.ClearChanged(e) {
		t.Error("it has changed before anything came")
	}
	table.Add(e.Key, volume.AttachLane, only("v", "n"))
	if got := started(table); len(got) > 0 {
		t.Fatalf("%v runs twice at once", got)
	}
	if !table.ClearChanged(e) || table.ClearChanged(e) {
		t.Error("want it reported as changed, once")
	}
	table.Done(e)
	if table.Has(e.Key) {
		t.Error("it runs once more after its worker has looked at the change")
	}
	e = taken(t, table, "va", volume.AttachLane, only("v", "n"))
	table.Add(e.Key, volume.AttachLane, only("v", "n"))
	table.DoneFor(e, volume.AttachLane, time.Hour)
	take(t, table, e.Key)
}

// Renew and RetryNow say that a failure may not happen again: they cut the backoff that the run would
// lead to, and do not repeat a run that succeeds.
func TestRunDuringWhichSomethingChangedThatMayHelpIsRepeatedIfItFails(t *testing.T) {
	place := only("v", "n")
	for name, help := range map[string]func(*volume.Table, volume.Key){
		"Renew":    func(table *volume.Table, key volume.Key) { table.Renew(key, volume.AttachLane, place) },
		"RetryNow": func(table *volume.Table, key volume.Key) { table.RetryNow(key) },
	} {
		t.Run(name, func(t *testing.T) {
			table := openTable(10, 0, true)
			e := taken(t, table, "va", volume.AttachLane, place)
			help(table, e.Key)
			table.ClearChanged(e)
			table.DoneFor(e, volume.AttachLane, time.Hour)
			e = take(t, table, e.Key)
			help(table, e.Key)
			table.ClearChanged(e)
			table.Done(e)
			if table.Has(e.Key) {
				t.Error("a run that succeeded is repeated")
			}
		})
	}
}

func TestDelayedEntryRunsWhenItIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		table := openTable(1, 0, true)
		runs := make(chan time.Time)
		go table.Run(ctx, func(e *volume.Entry) {
			go func() {
				runs <- time.Now()
				table.DoneFor(e, volume.AttachLane, 3*time.Second)
			}()
		})
		table.Add(volume.ClaimKey("va"), volume.AttachLane, volume.Place{})
		first, second := <-runs, <-runs
		if got := second.Sub(first); got != 3*time.Second {
			t.Errorf("ran again after %v, want 3s", got)
		}
		synctest.Wait()
		table.RetryNow(volume.ClaimKey("va"))
		if got := (<-runs).Sub(second); got != 0 {
			t.Errorf("ran again %v after RetryNow, want at once", got)
		}
	})
}

// A longer delay must not hide a shorter one that comes after it.
func TestDelayedEntriesRunInTheOrderInWhichTheyAreDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := openTable(10, 0, true)
		for i, delay := range []int{5, 1, 4, 2, 3} {
			e := taken(t, table, fmt.Sprint(delay), volume.AttachLane, only(fmt.Sprint("v", i), "n"))
			table.DoneFor(e, volume.AttachLane, time.Duration(delay)*time.Second)
		}
		table.RetryNow(volume.ClaimKey("4"))
		take(t, table, volume.ClaimKey("4"))
		for _, want := range []int{1, 2, 3, 5} {
			time.Sleep(time.Until(look(t, table, fmt.Sprint(want)).Due))
			take(t, table, volume.ClaimKey(fmt.Sprint(want)))
			if got := started(table); len(got) > 0 {
				t.Errorf("%v started before they were due", got)
			}
		}
	})
}

func TestEntryThatChangesItsLaneIsOtherWorkAndCountsFromThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := openTable(10, 0, true)
		begin := time.Now()
		e := taken(t, table, "va", volume.AttachLane, only("v", "n"))
		time.Sleep(time.Minute)
		table.DoneFor(e, volume.AttachLane, time.Minute)
		time.Sleep(time.Minute)
		if e = take(t, table, e.Key); e.Since() != begin {
			t.Error("a retry counts from its own begin, not from that of its work")
		}
		table.DoneFor(e, volume.DetachLane, 0)
		if got := look(t, table, "va").Since; got != begin.Add(2*time.Minute) {
			t.Errorf("the detach counts from %v after the begin, want 2m", got.Sub(begin))
		}
	})
}

// repeating runs a Table whose workers ask for another run at once, up to a thousand times. The
// function that it returns says how many runs there were.
func repeating(ctx context.Context, table *volume.Table, l volume.Lane) func() int {
	var mu sync.Mutex
	runs := 0
	go table.Run(ctx, func(e *volume.Entry) {
		mu.Lock()
		runs++
		enough := runs >= 1000
		mu.Unlock()
		if enough {
			table.Done(e)
			return
		}
		table.DoneFor(e, l, 0)
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
		table, key, place := openTable(1, 0, true), volume.ClaimKey("va"), only("v", "n")
		runs := repeating(ctx, table, volume.AttachLane)
		table.Add(key, volume.AttachLane, place)
		if got := runs(); got != 2 {
			t.Errorf("%d runs at once, want 2", got)
		}
		time.Sleep(time.Minute)
		before := runs()
		if before > 40 {
			t.Errorf("%d runs in a minute, want a few", before)
		}
		for name, ask := range map[string]func(){
			"Add":      func() { table.Add(key, volume.AttachLane, place) },
			"Renew":    func() { table.Renew(key, volume.AttachLane, place) },
			"RetryNow": func() { table.RetryNow(key) },
		} {
			time.Sleep(volume.RepeatPauseMax / 2)
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
		table := openTable(1, 0, true)
		e := taken(t, table, "va", volume.AttachLane, only("v", "n"))
		table.DoneFor(e, volume.AttachLane, 0)
		table.DoneFor(take(t, table, e.Key), volume.AttachLane, 0)
		if v := look(t, table, "va"); v.State != volume.Delayed {
			t.Fatalf("%+v, want it to pause", v)
		}
		time.Sleep(volume.RepeatPauseMax)
		table.DoneFor(take(t, table, e.Key), volume.AttachLane, time.Second)
		time.Sleep(time.Second)
		table.DoneFor(take(t, table, e.Key), volume.AttachLane, 0)
		take(t, table, e.Key)
	})
}

func TestWorkThatPausesBeforeItIsRepeatedIsStillWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		table := openTable(2, 0, true)
		runs := repeating(ctx, table, volume.DetachLane)
		table.Add(volume.ClaimKey("detach"), volume.DetachLane, only("v", "a"))
		if got := runs(); got != 2 {
			t.Fatalf("%d runs at once, want 2", got)
		}
		table.Add(volume.ClaimKey("attach"), volume.AttachLane, only("v", "b"))
		synctest.Wait()
		if v := look(t, table, "attach"); v.Wait.Kind != volume.WaitDetach || v.Wait.Detach.Name != "detach" {
			t.Errorf("%+v, want it to wait for the detach", v)
		}
	})
}
