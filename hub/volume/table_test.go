package volume_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

func openTable(workers, perNode int, parallel bool) *volume.Table {
	table := volume.NewTable("f")
	table.Begin(workers)
	table.SetLimits(workers, perNode, parallel)
	table.OpenLanes()
	return table
}

// only is the place of a call that must be the only one for its volume.
func only(handle, nodeID string) volume.Place {
	return volume.Place{Target: attach.Target{VolumeHandle: handle, NodeID: nodeID}}
}

// shared is the place of a call for a multi-node volume.
func shared(handle, nodeID string) volume.Place {
	p := only(handle, nodeID)
	p.Shared = true
	return p
}

// taken adds an entry and has it run.
func taken(t *testing.T, table *volume.Table, name string, l volume.Lane, p volume.Place) *volume.Entry {
	t.Helper()
	table.Add(volume.ClaimKey(name), l, p)
	return take(t, table, volume.ClaimKey(name))
}

// take has the next entry run, which has to be that of a key.
func take(t *testing.T, table *volume.Table, key volume.Key) *volume.Entry {
	t.Helper()
	e := table.Take(time.Now())
	if e == nil {
		t.Fatalf("nothing was started, want %v", key)
	}
	if e.Key != key {
		t.Fatalf("%v was started, want %v", e.Key, key)
	}
	return e
}

// started returns the names of all entries that start now, which then run.
func started(table *volume.Table) []string {
	var names []string
	for e := table.Take(time.Now()); e != nil; e = table.Take(time.Now()) {
		names = append(names, e.Key.Name)
	}
	return names
}

func look(t *testing.T, table *volume.Table, name string) volume.EntryView {
	t.Helper()
	v, ok := table.Look(volume.ClaimKey(name))
	if !ok {
		t.Fatalf("there is no entry %s", name)
	}
	return v
}

func TestNothingIsAskedForBetweenTerms(t *testing.T) {
	table := openTable(10, 0, true)
	table.Add(volume.ClaimKey("a"), volume.AttachLane, only("v", "n"))
	table.Close()
	table.Add(volume.ClaimKey("b"), volume.AttachLane, only("v", "n"))
	table.Renew(volume.ClaimKey("b"), volume.AttachLane, only("v", "n"))
	table.RetryNow(volume.ClaimKey("b"))
	if table.Has(volume.ClaimKey("a")) || table.Has(volume.ClaimKey("b")) {
		t.Error("there is an entry without a term")
	}
	table.Begin(10)
	if left := table.Remains(); left != "" {
		t.Errorf("a new term begins with %s", left)
	}
	table.Add(volume.ClaimKey("b"), volume.AttachLane, only("v", "n"))
	if got := started(table); len(got) > 0 {
		t.Errorf("%v started before the driver could be called", got)
	}
	table.OpenLanes()
	take(t, table, volume.ClaimKey("b"))
}

// A volume whose calls end the driver's process must not be tried at each new connection, nor in each new term.
func TestNewConnectionDoesNotEndTheDelayOfASuspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key, place := volume.ClaimKey("a"), only("v", "n")
		table := volume.NewTable("f")
		begin := func() {
			table.Begin(10)
			table.OpenLanes()
		}
		begin()
		table.Add(key, volume.AttachLane, place)
		fail := func(e *volume.Entry) {
			for i := range volume.DisconnectsAllowed + 1 {
				e.Retries.Disconnected(i)
			}
			e.Retries.AfterReconnect = 20 * time.Second
			table.DoneFor(e, volume.AttachLane, time.Minute)
		}
		startsAfter := func(what string, want time.Duration) *volume.Entry {
			t.Helper()
			began := time.Now()
			e := table.Take(time.Now())
			for ; e == nil && time.Since(began) < time.Hour; e = table.Take(time.Now()) {
				time.Sleep(time.Second)
			}
			if took := time.Since(began); e == nil || took != want {
				t.Fatalf("%s: it starts after %v, want %v", what, took, want)
			}
			return e
		}
		e := startsAfter("at first", 0)
		table.Renew(key, volume.AttachLane, place) // during its run
		fail(e)
		table.Renew(key, volume.AttachLane, place)
		fail(startsAfter("after a failure", time.Minute))
		time.Sleep(50 * time.Second)
		table.Renew(key, volume.AttachLane, place)
		fail(startsAfter("connected again 10s before it is due", 20*time.Second))
		time.Sleep(2 * time.Minute)
		table.Renew(key, volume.AttachLane, place)
		fail(startsAfter("connected again when it is due", 20*time.Second))
		table.Close()
		begin()
		table.Renew(key, volume.AttachLane, place)
		fail(startsAfter("in the next term", time.Minute))
		table.RetryNow(key)
		fail(startsAfter("after a change of an object", 0))
		table.Renew(key, volume.DetachLane, place)
		e = startsAfter("as a detach", 0)
		e.Retries = volume.Retries{}
		table.DoneFor(e, volume.DetachLane, time.Minute)
		table.Renew(key, volume.DetachLane, place)
		table.Done(startsAfter("no suspect any more", 0))
	})
}
