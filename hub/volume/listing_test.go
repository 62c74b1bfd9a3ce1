package volume_test

import (
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

func TestListingIsOutOfDateWhereAnEntryWasOrIs(t *testing.T) {
	at := attach.Target{VolumeHandle: "v", NodeID: "a"}
	dest := queue.Destination{Target: at, Node: "node"}
	for name, c := range map[string]struct {
		before, during func(table *volume.Table)
		want           bool
	}{
		"no work": {func(*volume.Table) {}, func(*volume.Table) {}, false},
		"work elsewhere": {func(*volume.Table) {}, func(table *volume.Table) {
			table.Queue.Add(queue.AttachmentKey("va"), queue.AttachLane, queue.Destination{Target: attach.Target{VolumeHandle: "v", NodeID: "b"}, Node: "other"})
		}, false},
		"work before": {func(table *volume.Table) { runAt(table, dest) }, func(*volume.Table) {}, false},
		"work began before and ended": {func(table *volume.Table) { table.Queue.Add(queue.AttachmentKey("va"), queue.AttachLane, dest) },
			func(table *volume.Table) { table.Queue.End(next(table), queue.Finished) }, true},
		"work meanwhile": {func(*volume.Table) {}, func(table *volume.Table) { runAt(table, dest) }, true},
		"work goes on":   {func(table *volume.Table) { table.Queue.Add(queue.AttachmentKey("va"), queue.AttachLane, dest) }, func(*volume.Table) {}, true},
		"a worker found the target": {func(table *volume.Table) {}, func(table *volume.Table) {
			table.Queue.Add(queue.AttachmentKey("va"), queue.AttachLane, queue.Destination{})
			e := next(table)
			table.Queue.MayCall(e, dest)
			table.Queue.End(e, queue.Finished)
		}, true},
		"a dangling publication": {func(*volume.Table) {}, func(table *volume.Table) { table.AddDanglingFromList(volume.Identity{}, attach.Record{Target: at}) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			table := openTable(2, 0, false)
			c.before(table)
			table.Listing(true)
			c.during(table)
			if got := table.Touched(at); got != c.want {
				t.Errorf("out of date: %v, want %v", got, c.want)
			}
		})
	}
}

// runAt has a worker do all work for a VolumeAttachment at a place.
func runAt(table *volume.Table, p queue.Destination) {
	table.Queue.Add(queue.AttachmentKey("va"), queue.AttachLane, p)
	table.Queue.End(next(table), queue.Finished)
}

func TestWhatOnlyAListingHasShownEndsWithTheTermAndWithTheListing(t *testing.T) {
	at := attach.Target{VolumeHandle: "v", NodeID: "a"}
	for name, c := range map[string]struct {
		end  func(table *volume.Table)
		left int
	}{
		"nothing happens":          {func(*volume.Table) {}, 1},
		"the term ends":            {func(table *volume.Table) { table.Close() }, 0},
		"it is dropped":            {func(table *volume.Table) { table.DropDanglingFromList() }, 0},
		"not listed there":         {func(table *volume.Table) { listed(table, true, false, time.Now()) }, 0},
		"listed there":             {func(table *volume.Table) { listed(table, true, true, time.Now()) }, 1},
		"listed without its nodes": {func(table *volume.Table) { listed(table, false, false, time.Now()) }, 1},
		"found by a later listing": {func(table *volume.Table) { listed(table, true, false, time.Now().Add(-time.Hour)) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			table := openTable(2, 0, false)
			table.AddDanglingFromList(volume.Identity{Node: "n", PersistentVolume: "pv"}, attach.Record{Target: at})
			if u, ok := table.Dangling(at); !ok || !u.FromList {
				t.Fatalf("not found: %+v", u)
			}
			c.end(table)
			if got := len(table.AllDangling()); got != c.left {
				t.Errorf("%d left, want %d", got, c.left)
			}
		})
	}
}

func listed(table *volume.Table, listed, there bool, began time.Time) {
	table.ResolveDanglingNotInList(func(attach.Target) (bool, bool) { return listed, there }, began, time.Minute)
}

// Its VolumeAttachment vanished after a listing had shown its volume: this process knows it itself now.
func TestPublicationThatAVolumeAttachmentLeavesIsNoLongerKnownFromAListingAlone(t *testing.T) {
	table := openTable(2, 0, false)
	r := recorded("a")
	table.AddDanglingFromList(volume.Identity{Node: "n", PersistentVolume: "pv"}, r)
	table.Gone(volume.Identity{Name: "va", UID: "1"}, &r, false)
	table.DropDanglingFromList()
	if u, ok := table.Dangling(r.Target); !ok || u.FromList || u.FormerOwner.Name != "va" {
		t.Errorf("%+v", u)
	}
}
