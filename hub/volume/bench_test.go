package volume_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// backlog is how much waits in a Table while it is measured.
const backlog = 10_000

// fullTable has much to do, each for a volume of its own.
func fullTable(node string, perNode int) *volume.Table {
	table := openTable(20, perNode, true)
	for i := range backlog {
		p := only(fmt.Sprintf("volume-%d", i), "node")
		p.Node = node
		table.Add(volume.ClaimKey(fmt.Sprintf("waiting-%d", i)), volume.AttachLane, p)
	}
	return table
}

// BenchmarkQueue is the way of one entry through a Table in which others wait.
func BenchmarkQueue(b *testing.B) {
	for name, late := range map[string]bool{"placed": false, "unplaced": true} {
		b.Run(name, func(b *testing.B) {
			table := fullTable("node", 0)
			places := map[volume.Key]volume.Place{}
			for i := range backlog {
				p := only(fmt.Sprintf("volume-%d", i), "node")
				p.Node = "node"
				places[volume.ClaimKey(fmt.Sprintf("waiting-%d", i))] = p
			}
			b.ReportAllocs()
			for b.Loop() {
				e := table.Take(time.Now())
				if !table.Reserve(e, places[e.Key]) {
					b.Fatal("it has to wait")
				}
				table.ClearChanged(e)
				table.Done(e)
				p := places[e.Key]
				if late {
					p = volume.Place{Node: "node"}
				}
				table.Add(e.Key, volume.AttachLane, p)
			}
		})
	}
}

func BenchmarkQueueWithBackoff(b *testing.B) {
	table := fullTable("", 0)
	b.ReportAllocs()
	for b.Loop() {
		table.DoneFor(table.Take(time.Now()), volume.AttachLane, time.Nanosecond)
	}
}

func BenchmarkQueueView(b *testing.B) {
	table := fullTable("node", 0)
	b.ReportAllocs()
	for b.Loop() {
		if v := table.Lanes(time.Now()); v[volume.AttachLane].Queued != backlog {
			b.Fatalf("%+v", v)
		}
	}
}

// BenchmarkFullNode: all that waits does so for one node, and one after the other gets its slot.
func BenchmarkFullNode(b *testing.B) {
	table := fullTable("node", 1)
	e := table.Take(time.Now())
	p := only("volume-0", "node")
	p.Node = "node"
	table.Take(time.Now()) // all others go to the node
	b.ReportAllocs()
	for b.Loop() {
		table.Done(e)
		p.Target.VolumeHandle = e.Key.Name
		table.Add(e.Key, volume.AttachLane, p)
		e = table.Take(time.Now())
		table.Take(time.Now())
	}
}

// BenchmarkOneVolume is the way of one entry through a Table in which others wait for the same volume.
func BenchmarkOneVolume(b *testing.B) {
	for name, share := range map[string]bool{"single-node": false, "multi-node": true} {
		for _, n := range []int{10, 100, 1000} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				table := openTable(20, 0, true)
				places := map[volume.Key]volume.Place{}
				for i := range n {
					p := only("v", fmt.Sprintf("node-%d", i))
					p.Shared = share
					key := volume.ClaimKey(p.Target.NodeID)
					places[key] = p
					table.Add(key, volume.AttachLane, p)
				}
				b.ReportAllocs()
				for b.Loop() {
					e := table.Take(time.Now())
					table.Reserve(e, places[e.Key])
					table.Done(e)
					table.Add(e.Key, volume.AttachLane, places[e.Key])
				}
			})
		}
	}
}

// BenchmarkBlockedEntryIsAskedForAgain: a node dies with many volumes, whose attaches elsewhere all wait
// for a detach, and each of them is asked for again.
func BenchmarkBlockedEntryIsAskedForAgain(b *testing.B) {
	table := openTable(10*backlog, 0, true)
	for i := range backlog {
		v := fmt.Sprintf("volume-%d", i)
		table.Add(volume.ClaimKey("detach "+v), volume.DetachLane, only(v, "a"))
		table.Add(volume.ClaimKey("attach "+v), volume.AttachLane, only(v, "b"))
	}
	for table.Take(time.Now()) != nil {
	}
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		v := fmt.Sprintf("volume-%d", i%backlog)
		table.Add(volume.ClaimKey("attach "+v), volume.AttachLane, only(v, "b"))
		i++
	}
}

// fullOfUnowned is a Table with much that is unowned.
func fullOfUnowned() *volume.Table {
	table := volume.NewTable("f")
	for i := range backlog {
		name := fmt.Sprintf("gone-%d", i)
		va := attachment(name, "uid")
		last := attach.Record{Target: attach.Target{VolumeHandle: name, NodeID: "node"}}
		table.Gone(volume.IdentityOf(va), &last)
		table.Open(attachment("exists-"+name, "uid"))
	}
	table.Begin(1)
	table.OpenLanes()
	return table
}

func BenchmarkKnown(b *testing.B) {
	table := fullOfUnowned()
	va := attachment("va", "1")
	table.Open(va)
	b.ReportAllocs()
	for b.Loop() {
		if known, unchanged := table.Known(va); !known || !unchanged {
			b.Fatal("it is not known")
		}
	}
}

// BenchmarkReserveWhileMuchIsUnowned: an attach looks for what is to be detached before, while much is.
func BenchmarkReserveWhileMuchIsUnowned(b *testing.B) {
	table := fullOfUnowned()
	table.Add(volume.ClaimKey("va"), volume.AttachLane, volume.Place{})
	e := table.Take(time.Now())
	b.ReportAllocs()
	for b.Loop() {
		if !table.Reserve(e, only("handle", "node-2")) {
			b.Fatal("it waits")
		}
	}
}

func BenchmarkWithholds(b *testing.B) {
	table := fullOfUnowned()
	b.ReportAllocs()
	for b.Loop() {
		if claimed, published := table.Withholds("pv", "handle", time.Minute, time.Now()); claimed || published {
			b.Fatal("nothing is left of it")
		}
	}
}

// BenchmarkObserve: a standby sees much vanish.
func BenchmarkObserve(b *testing.B) {
	table, now := fullOfUnowned(), time.Now()
	b.ReportAllocs()
	for b.Loop() {
		table.ObserveDeletion(volume.Identity{Name: "gone", UID: "1"}, attach.Record{Target: attach.Target{VolumeHandle: "v", NodeID: "a"}}, now)
	}
}
