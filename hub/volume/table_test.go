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

// only is the destination of a call that must be the only one for its volume.
func only(handle, nodeID string) queue.Destination {
	return queue.Destination{Target: attach.Target{VolumeHandle: handle, NodeID: nodeID}}
}

// shared is the destination of a call for a multi-node volume.
func shared(handle, nodeID string) queue.Destination {
	p := only(handle, nodeID)
	p.Shared = true
	return p
}

// taken adds an entry and has it run.
func taken(t *testing.T, table *volume.Table, name string, l queue.Lane, p queue.Destination) *queue.Item {
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

// On a full node, an attach that has its place, or may have it, does not wait for one.
func TestOnlyAnAttachWithoutAPlaceWaitsForOne(t *testing.T) {
	here, elsewhere := attach.Target{VolumeHandle: "v", NodeID: "n"}, attach.Target{VolumeHandle: "v", NodeID: "before"}
	believed := func(b volume.Belief, at attach.Target) volume.Publication {
		return volume.Publication{Record: attach.Record{Target: at}, Belief: b}
	}
	refused := believed(volume.Uncertain, here)
	refused.NodeFull = true
	for name, c := range map[string]struct {
		believed       volume.Publication
		lost, dangling bool
		noted          bool
		want           bool
	}{
		"nothing is known":                         {want: true},
		"the object notes it":                      {noted: true, want: false},
		"published":                                {believed: believed(volume.Published, here), want: false},
		"recorded":                                 {believed: believed(volume.Recorded, here), want: false},
		"called without an answer":                 {believed: believed(volume.Uncertain, here), want: false},
		"refused because the node was full":        {believed: refused, noted: true, want: true},
		"unpublished":                              {believed: believed(volume.Unpublished, here), noted: true, want: true},
		"recorded at the node ID of before":        {believed: believed(volume.Recorded, elsewhere), want: true},
		"dangling there":                           {dangling: true, want: false},
		"dangling there, and refused":              {believed: refused, dangling: true, want: false},
		"lost":                                     {believed: believed(volume.Recorded, here), lost: true, noted: true, want: true},
		"lost, and published again but not marked": {believed: believed(volume.Published, here), lost: true, want: false},
	} {
		table := volume.NewTable("f")
		if c.believed.Belief != volume.Unknown {
			table.Open(attachment("va", "1")).Publication = c.believed
		}
		if c.dangling {
			table.AddDanglingFromList(volume.Identity{}, attach.Record{Target: here})
		}
		if got := table.NeedsCapacity(queue.AttachmentKey("va"), queue.Destination{Target: here, Node: "n", Noted: c.noted}, c.lost); got != c.want {
			t.Errorf("%s: it needs a place: %v, want %v", name, got, c.want)
		}
	}
}
