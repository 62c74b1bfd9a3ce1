package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

// backlog is how much waits in a Queue while it is measured.
const backlog = 10_000

// fullQueue has much to do, each for a volume of its own.
func fullQueue(node string, perNode int) *queue.Queue {
	q := open(20, perNode, true)
	for i := range backlog {
		p := only(fmt.Sprintf("volume-%d", i), "node")
		p.Node = node
		q.Add(queue.AttachmentKey(fmt.Sprintf("waiting-%d", i)), queue.AttachLane, p)
	}
	return q
}

// BenchmarkQueue is the way of one item through a Queue in which others wait.
func BenchmarkQueue(b *testing.B) {
	for name, late := range map[string]bool{"placed": false, "unplaced": true} {
		b.Run(name, func(b *testing.B) {
			q := fullQueue("node", 0)
			places := map[queue.Key]queue.Place{}
			for i := range backlog {
				p := only(fmt.Sprintf("volume-%d", i), "node")
				p.Node = "node"
				places[queue.AttachmentKey(fmt.Sprintf("waiting-%d", i))] = p
			}
			b.ReportAllocs()
			for b.Loop() {
				e := q.Take(time.Now())
				if !q.MayCall(e, places[e.Key]) {
					b.Fatal("it has to wait")
				}
				q.ClearChanged(e)
				q.End(e, queue.Finished)
				p := places[e.Key]
				if late {
					p = queue.Place{Node: "node"}
				}
				q.Add(e.Key, queue.AttachLane, p)
			}
		})
	}
}

func BenchmarkQueueWithBackoff(b *testing.B) {
	q := fullQueue("", 0)
	b.ReportAllocs()
	for b.Loop() {
		q.End(q.Take(time.Now()), queue.BackOff(queue.AttachLane, time.Nanosecond))
	}
}

func BenchmarkQueueView(b *testing.B) {
	q := fullQueue("node", 0)
	b.ReportAllocs()
	for b.Loop() {
		if all, _ := q.All(); len(all) != backlog {
			b.Fatal(len(all))
		}
	}
}

// BenchmarkFullNode: all that waits does so for one node, and one after the other gets its slot.
func BenchmarkFullNode(b *testing.B) {
	q := fullQueue("node", 1)
	e := q.Take(time.Now())
	p := only("volume-0", "node")
	p.Node = "node"
	q.Take(time.Now()) // all others go to the node
	b.ReportAllocs()
	for b.Loop() {
		q.End(e, queue.Finished)
		p.Target.VolumeHandle = e.Key.Name
		q.Add(e.Key, queue.AttachLane, p)
		e = q.Take(time.Now())
		q.Take(time.Now())
	}
}

// BenchmarkOneVolume is the way of one item through a Queue in which others wait for the same volume.
func BenchmarkOneVolume(b *testing.B) {
	for name, share := range map[string]bool{"single-node": false, "multi-node": true} {
		for _, n := range []int{10, 100, 1000} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				q := open(20, 0, true)
				places := map[queue.Key]queue.Place{}
				for i := range n {
					p := only("v", fmt.Sprintf("node-%d", i))
					p.Shared = share
					key := queue.AttachmentKey(p.Target.NodeID)
					places[key] = p
					q.Add(key, queue.AttachLane, p)
				}
				b.ReportAllocs()
				for b.Loop() {
					e := q.Take(time.Now())
					q.MayCall(e, places[e.Key])
					q.End(e, queue.Finished)
					q.Add(e.Key, queue.AttachLane, places[e.Key])
				}
			})
		}
	}
}

// BenchmarkBlockedItemIsAskedForAgain: a node dies with many volumes, whose attaches elsewhere all wait
// for a detach, and each of them is asked for again.
func BenchmarkBlockedItemIsAskedForAgain(b *testing.B) {
	q := open(10*backlog, 0, true)
	for i := range backlog {
		v := fmt.Sprintf("volume-%d", i)
		q.Add(queue.AttachmentKey("detach "+v), queue.DetachLane, only(v, "a"))
		q.Add(queue.AttachmentKey("attach "+v), queue.AttachLane, only(v, "b"))
	}
	for q.Take(time.Now()) != nil {
	}
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		v := fmt.Sprintf("volume-%d", i%backlog)
		q.Add(queue.AttachmentKey("attach "+v), queue.AttachLane, only(v, "b"))
		i++
	}
}
