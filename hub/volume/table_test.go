package volume_test

import (
	"testing"
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
