package hub

import (
	"fmt"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// backlog is how much waits in a queue while it is measured.
const backlog = 10_000

func fullQueue() *queue {
	q := newQueue(20)
	q.Open()
	for i := range backlog {
		q.Add(workKey{attachmentWork, fmt.Sprintf("waiting-%d", i)}, attachLane)
	}
	return q
}

// BenchmarkQueue is the way of one item through a queue in which others wait.
func BenchmarkQueue(b *testing.B) {
	q := fullQueue()
	b.ReportAllocs()
	for b.Loop() {
		it, _ := q.take(time.Now())
		if !q.TakeTurn(it, it.key.name) || !q.TakePlace(it, "node") {
			b.Fatal("it has to wait")
		}
		q.Changed(it)
		q.Done(it)
		q.Add(it.key, it.lane)
	}
}

func BenchmarkQueueWithBackoff(b *testing.B) {
	q := fullQueue()
	b.ReportAllocs()
	for b.Loop() {
		it, _ := q.take(time.Now())
		q.DoneFor(it, it.lane, time.Nanosecond)
	}
}

func BenchmarkQueueView(b *testing.B) {
	q := fullQueue()
	b.ReportAllocs()
	for b.Loop() {
		if v := q.view(time.Now()); v[attachLane].queued != backlog {
			b.Fatalf("%+v", v)
		}
	}
}

// BenchmarkParkedItemIsLifted: a node dies with many volumes, which all wait for a
// detach, and each of them is asked for again.
func BenchmarkParkedItemIsLifted(b *testing.B) {
	q := newQueue(backlog)
	q.Open()
	q.SetLimits(10*backlog, 0)
	items := make([]*item, backlog)
	for i := range items {
		q.Add(workKey{attachmentWork, fmt.Sprintf("detach-%d", i)}, detachLane)
		q.Add(workKey{attachmentWork, fmt.Sprintf("attach-%d", i)}, attachLane)
	}
	for range 2 * backlog {
		it, _ := q.take(time.Now())
		q.TakeTurn(it, it.key.name)
	}
	for i := range items {
		items[i] = q.items[workKey{attachmentWork, fmt.Sprintf("attach-%d", i)}]
		if !q.WaitFor(items[i], workKey{attachmentWork, fmt.Sprintf("detach-%d", i)}) {
			b.Fatal("it does not wait")
		}
	}
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		it := items[i%backlog]
		q.Add(it.key, attachLane)
		it, _ = q.take(time.Now())
		if !q.WaitFor(it, workKey{attachmentWork, fmt.Sprintf("detach-%d", i%backlog)}) {
			b.Fatal("it does not wait")
		}
		i++
	}
}

func fullLedger() *ledger {
	l := newLedger(attach.Finalizer(routedDriver))
	for i := range backlog {
		name := fmt.Sprintf("gone-%d", i)
		l.records[name] = &record{volume: "pv-" + name}
		l.vanish(name)
		l.addOrphan(&record{progress: attach.Progress{Target: attach.Target{VolumeHandle: name, NodeID: "node"}}})
	}
	return l
}

func BenchmarkLedgerKnows(b *testing.B) {
	l := fullLedger()
	va := routedAttachment(guardedAttachment)
	l.open(va)
	b.ReportAllocs()
	for b.Loop() {
		if recorded, unchanged := l.known(va); !recorded || !unchanged {
			b.Fatal("it is not known")
		}
	}
}

// BenchmarkLedgerLeftElsewhere: an attach looks for what is to be detached before, while much
// is.
func BenchmarkLedgerLeftElsewhere(b *testing.B) {
	l := fullLedger()
	va := routedAttachment()
	b.ReportAllocs()
	for b.Loop() {
		if keys := l.leftElsewhere(va, attach.Target{VolumeHandle: "handle", NodeID: "node-2"}); len(keys) != 0 {
			b.Fatal(keys)
		}
	}
}

func BenchmarkLedgerWithheld(b *testing.B) {
	l := fullLedger()
	b.ReportAllocs()
	for b.Loop() {
		if l.withheld("handle", time.Minute, time.Now()) {
			b.Fatal("it is no orphan")
		}
	}
}
