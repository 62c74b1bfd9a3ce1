package volume_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// backlog is how much waits in a Table while it is measured.
const backlog = 10_000

// fullOfDangling is a Table with much that is dangling.
func fullOfDangling() *volume.Table {
	table := volume.NewTable("f")
	for i := range backlog {
		name := fmt.Sprintf("gone-%d", i)
		va := attachment(name, "uid")
		last := attach.Record{Target: attach.Target{VolumeHandle: name, NodeID: "node"}}
		table.Gone(volume.IdentityOf(va), &last, false)
		table.Open(attachment("exists-"+name, "uid"))
	}
	table.Queue.Begin()
	table.Queue.SetLimits(queue.Limits{Workers: 1})
	table.Queue.Open()
	return table
}

func BenchmarkIsUnchanged(b *testing.B) {
	table := fullOfDangling()
	va := attachment("va", "1")
	table.Open(va)
	b.ReportAllocs()
	for b.Loop() {
		if !table.IsUnchanged(va) {
			b.Fatal("it is not known")
		}
	}
}

// BenchmarkReserveWhileMuchIsDangling: an attach looks for what is to be detached before, while much is.
func BenchmarkReserveWhileMuchIsDangling(b *testing.B) {
	table := fullOfDangling()
	table.Queue.Add(queue.AttachmentKey("va"), queue.AttachLane, queue.Place{})
	e := next(table)
	b.ReportAllocs()
	for b.Loop() {
		if !table.Queue.MayCall(e, only("handle", "node-2")) {
			b.Fatal("it waits")
		}
	}
}

func BenchmarkWithholds(b *testing.B) {
	table := fullOfDangling()
	b.ReportAllocs()
	for b.Loop() {
		if named, published := table.Withholds("pv", "handle", time.Minute, time.Now()); named || published {
			b.Fatal("nothing is left of it")
		}
	}
}

// BenchmarkObserve: a standby sees much vanish.
func BenchmarkObserve(b *testing.B) {
	table, now := fullOfDangling(), time.Now()
	b.ReportAllocs()
	for b.Loop() {
		table.ObserveDeletion(volume.Identity{Name: "gone", UID: "1"}, attach.Record{Target: attach.Target{VolumeHandle: "v", NodeID: "a"}}, now)
	}
}
