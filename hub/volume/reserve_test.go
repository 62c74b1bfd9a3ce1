package volume_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// The worker finds what it has to wait for: where the volume is was not known when the entry began.
func TestWorkerThatFindsADetachLeavesItsEntryAndTheEntryRunsAnewWhenThatEnds(t *testing.T) {
	table := openTable(10, 0, true)
	detach := taken(t, table, "detach", volume.DetachLane, only("v", "a"))
	attach := taken(t, table, "attach", volume.AttachLane, volume.Place{})
	if table.Reserve(attach, only("v", "b")) {
		t.Fatal("the attach goes on beside the detach")
	}
	if v := look(t, table, "attach"); v.State != volume.Blocked || v.Wait.Detach != detach.Key {
		t.Errorf("%+v, want it to wait for the detach", v)
	}
	if got := table.Lanes(time.Now())[volume.AttachLane].Running; got != 0 {
		t.Errorf("%d attaches are counted as running, want none", got)
	}
	table.Done(detach)
	take(t, table, attach.Key)
	if !table.Reserve(attach, only("v", "b")) {
		t.Error("it waits, and nothing else is to be done")
	}
}

// A detach comes while the worker reads what it needs for its call.
func TestCallThatHasNotBegunMakesWayForADetachThatComes(t *testing.T) {
	table := openTable(10, 0, true)
	attach := taken(t, table, "attach", volume.AttachLane, only("v", "b"))
	table.Add(volume.ClaimKey("detach"), volume.DetachLane, only("v", "a"))
	if got := started(table); len(got) > 0 {
		t.Fatalf("%v began beside the attach", got)
	}
	if table.Reserve(attach, only("v", "b")) {
		t.Fatal("the attach goes first")
	}
	detach := take(t, table, volume.ClaimKey("detach"))
	table.Done(detach)
	take(t, table, attach.Key)
}

func TestWorkerMayReserveTheSamePlaceRepeatedly(t *testing.T) {
	table := openTable(10, 0, true)
	attach := taken(t, table, "attach", volume.AttachLane, only("v", "b"))
	table.Add(volume.ClaimKey("next"), volume.AttachLane, only("v", "c"))
	for range 3 {
		if !table.Reserve(attach, only("v", "b")) {
			t.Fatal("it has to wait for what came after it")
		}
	}
}

// A claim has its volume at its previous target still: it is called there first.
func TestEntryThatMovesToAnotherNodeOfItsVolumeLetsNobodyGetBetween(t *testing.T) {
	table := openTable(10, 0, true)
	e := taken(t, table, "e", volume.AttachLane, only("v", "a"))
	if !table.Reserve(e, only("v", "b")) {
		t.Fatal("it has to wait for nobody")
	}
	table.Add(volume.ClaimKey("next"), volume.AttachLane, only("v", "c"))
	if got := started(table); len(got) > 0 {
		t.Errorf("%v began beside it", got)
	}
	table.Done(e)
	take(t, table, volume.ClaimKey("next"))
}

func TestEntryThatMovesToAnotherVolumeLetsThoseGoThatWaitedForIt(t *testing.T) {
	for name, blocked := range map[string]bool{"and goes on": false, "and has to wait there": true} {
		t.Run(name, func(t *testing.T) {
			table := openTable(10, 0, true)
			if blocked {
				taken(t, table, "other", volume.AttachLane, only("w", "a"))
			}
			e := taken(t, table, "e", volume.AttachLane, only("v", "a"))
			table.Add(volume.ClaimKey("next"), volume.AttachLane, only("v", "c"))
			if got := table.Reserve(e, only("w", "b")); got == blocked {
				t.Fatalf("it goes on: %v", got)
			}
			if got := started(table); !slices.Equal(got, []string{"next"}) {
				t.Errorf("%v were started, want the next of the volume that it left", got)
			}
		})
	}
}

func TestOthersGoOnWhenTheEntryBeforeThemWaitsNoMore(t *testing.T) {
	table := openTable(100, 0, true)
	taken(t, table, "on a", volume.AttachLane, shared("v", "a"))
	table.Add(volume.ClaimKey("only"), volume.AttachLane, only("v", "x"))
	table.Add(volume.ClaimKey("beside"), volume.AttachLane, shared("v", "b"))
	if got := started(table); len(got) > 0 {
		t.Fatalf("%v were started, want none", got)
	}
	table.Add(volume.ClaimKey("only"), volume.AttachLane, only("w", "x")) // it is another volume now
	if got := started(table); !slices.Contains(got, "beside") {
		t.Errorf("%v were started, want the one beside among them", got)
	}
}

func TestAllThatWaitRunOnceWhenCallsMayRunSideBySide(t *testing.T) {
	table := openTable(100, 0, false)
	taken(t, table, "on a", volume.AttachLane, shared("v", "a"))
	for _, node := range []string{"b", "c", "a"} {
		table.Add(volume.ClaimKey("second on "+node), volume.AttachLane, shared("v", node))
	}
	if got := started(table); len(got) > 0 {
		t.Fatalf("%v were started, want none", got)
	}
	table.SetLimits(100, 0, true)
	table.SetLimits(100, 0, true)
	if got := started(table); !slices.Equal(got, []string{"second on b", "second on c"}) {
		t.Errorf("%v were started, want those for other nodes, once each", got)
	}
}

func TestThoseThatHaveNotBegunWaitWhenCallsMayNoLongerRunSideBySide(t *testing.T) {
	table := openTable(100, 0, true)
	first := taken(t, table, "only", volume.AttachLane, only("v", "x"))
	for _, node := range []string{"a", "b", "c"} {
		table.Add(volume.ClaimKey("on "+node), volume.AttachLane, shared("v", node))
	}
	table.Done(first) // the others may run now, and no worker has taken them
	table.SetLimits(100, 0, false)
	for _, want := range []string{"on a", "on b", "on c"} {
		e := take(t, table, volume.ClaimKey(want))
		if got := started(table); len(got) > 0 {
			t.Errorf("%v began beside %s", got, want)
		}
		table.Done(e)
	}
}

func TestEntryThatNoLongerNeedsTheVolumeForItselfLetsOthersGo(t *testing.T) {
	table := openTable(100, 0, true)
	it := taken(t, table, "it", volume.AttachLane, only("v", "a"))
	table.Add(volume.ClaimKey("other"), volume.AttachLane, shared("v", "b"))
	if got := started(table); len(got) > 0 {
		t.Fatalf("%v were started, want none", got)
	}
	table.Reserve(it, shared("v", "a")) // from now on it needs the volume on one node only
	if got := started(table); !slices.Contains(got, "other") {
		t.Errorf("%v were started, want the other one", got)
	}
	if table.Reserve(it, only("v", "a")) {
		t.Error("it has the volume for itself beside the other one")
	}
}

// The PersistentVolume says MULTI_NODE now, and the volume was published in a single-node mode: the
// modes conflict, and the calls go one after the other.
func TestVolumeWhoseModesConflictCountsAsSingleNode(t *testing.T) {
	for nodes, want := range map[attach.NodeMode]bool{attach.SingleNode: false, attach.UnknownNodes: true, attach.MultiNode: true} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("published %v, late %v", nodes, late), func(t *testing.T) {
				table := openTable(10, 0, true)
				target := attach.Target{VolumeHandle: "v", NodeID: "a"}
				c := table.Open(attachment("published", "1"))
				publish(table, c, attach.Record{Target: target, Nodes: nodes})
				taken(t, table, "other", volume.AttachLane, shared("v", "b"))
				first := shared("v", "a")
				if late {
					first = volume.Place{}
				}
				table.Add(volume.ClaimKey("published"), volume.AttachLane, first)
				e := table.Take(time.Now())
				if got := e != nil && (!late || table.Reserve(e, shared("v", "a"))); got != want {
					t.Errorf("runs beside another: %v, want %v", got, want)
				}
			})
		}
	}
}
