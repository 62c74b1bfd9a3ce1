package volume_test

import (
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

func openTable(workers, perNode int, parallel bool) *volume.Table {
	table := volume.NewTable("f")
	table.Queue.Begin()
	table.Queue.SetLimits(queue.Limits{Workers: workers, PerNode: perNode, Parallel: parallel})
	table.Queue.Open()
	return table
}

// only is the place of a call that must be the only one for its volume.
func only(handle, nodeID string) queue.Place {
	return queue.Place{Target: attach.Target{VolumeHandle: handle, NodeID: nodeID}}
}

// shared is the place of a call for a multi-node volume.
func shared(handle, nodeID string) queue.Place {
	p := only(handle, nodeID)
	p.Shared = true
	return p
}

// taken adds an entry and has it run.
func taken(t *testing.T, table *volume.Table, name string, l queue.Lane, p queue.Place) *queue.Item {
	t.Helper()
	table.Queue.Add(queue.AttachmentKey(name), l, p)
	return take(t, table, queue.AttachmentKey(name))
}

// take has the next entry run, which has to be that of a key.
func take(t *testing.T, table *volume.Table, key queue.Key) *queue.Item {
	t.Helper()
	e := next(table)
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
	for e := next(table); e != nil; e = next(table) {
		names = append(names, e.Key.Name)
	}
	return names
}

func look(t *testing.T, table *volume.Table, name string) queue.Progress {
	t.Helper()
	v, ok := table.Queue.Look(queue.AttachmentKey(name))
	if !ok {
		t.Fatalf("there is no entry %s", name)
	}
	return v
}

func at(nodeID string) attach.Target { return attach.Target{VolumeHandle: "v", NodeID: nodeID} }

// next returns the item that starts now, nil for none.
func next(table *volume.Table) *queue.Item {
	e, _ := table.Queue.Start(time.Now())
	return e
}
