package volume_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// A driver that throttles makes many nodes full at once. All that waits must then not move under one lock of the
// Table: the hub would stand still.
func TestFullNodesAreNoticedInSmallSteps(t *testing.T) {
	const nodes, each = 50, 100
	table := openTable(2*nodes, 0, true)
	for i := range each {
		for n := range nodes {
			table.Add(volume.ClaimKey(fmt.Sprintf("va-%d-%d", n, i)), volume.AttachLane, on(fmt.Sprint("node-", n), fmt.Sprintf("v-%d-%d", n, i)))
		}
	}
	held := func() int { return table.Lanes(time.Now())[volume.AttachLane].Held }
	refused := 0
	for {
		before := held()
		e, again := table.Step(time.Now())
		if moved := held() - before; moved > volume.MostHeld {
			t.Fatalf("%d entries were moved in one step, want at most %d", moved, volume.MostHeld)
		}
		if e != nil {
			refused++
			before := held()
			table.Published(e, volume.NoPlace)
			table.DoneFor(e, volume.AttachLane, 0)
			if moved := held() - before; moved > 1 {
				t.Fatalf("%d entries were moved by one refusal", moved)
			}
		}
		if !again {
			break
		}
	}
	if refused != nodes || held() != nodes*each {
		t.Errorf("%d were refused and %d wait, want one refusal for each node and all to wait", refused, held())
	}
}

// Entries that wait for a slot of their node do not take the slots of others when the node becomes full.
func TestThoseThatWaitForASlotJoinTheLine(t *testing.T) {
	inLineTest(t, func(t *testing.T) {
		table := openTable(10, 1, true)
		e := taken(t, table, "a", volume.AttachLane, on("full", "a"))
		for _, name := range []string{"b", "c"} {
			time.Sleep(time.Millisecond)
			table.Add(volume.ClaimKey(name), volume.AttachLane, on("full", name))
		}
		time.Sleep(time.Millisecond)
		table.Add(volume.ClaimKey("detach"), volume.DetachLane, on("full", "detach"))
		if got := started(table); len(got) > 0 {
			t.Fatalf("%v were started beside a", got)
		}
		table.Published(e, volume.NoPlace)
		table.DoneFor(e, volume.AttachLane, 0)
		if got := started(table); !slices.Equal(got, []string{"detach"}) {
			t.Errorf("%v were started, want the detach", got)
		}
		if got, want := line(table), []string{"a", "b", "c"}; !slices.Equal(got, want) {
			t.Errorf("%v are in line, want %v", got, want)
		}
	})
}

// The oldest attaches are the first to start, also if several places become free at once.
func TestSeveralPlacesGoToTheOldestFirst(t *testing.T) {
	inLineTest(t, func(t *testing.T) {
		table := fullNode(t, "b", "c", "d")
		for range 3 {
			table.DetachedFrom("full")
		}
		if got, want := started(table), []string{"refused", "b", "c"}; !slices.Equal(got, want) {
			t.Errorf("%v were started, want %v", got, want)
		}
	})
}

func BenchmarkNodesBecomeFull(b *testing.B) {
	table := openTable(2*backlog, 0, true)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		table.Add(volume.ClaimKey(fmt.Sprint("va-", i)), volume.AttachLane, on(fmt.Sprint("node-", i%backlog), fmt.Sprint("v", i)))
		if e := table.Take(time.Now()); e != nil {
			table.Published(e, volume.NoPlace)
			table.DoneFor(e, volume.AttachLane, 0)
		}
		i++
	}
}
