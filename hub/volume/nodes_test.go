package volume_test

import (
	"slices"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// on is the place of a volume at a Kubernetes node.
func on(node, handle string) volume.Place {
	p := only(handle, "id of "+node)
	p.Node = node
	return p
}

func TestSlotOfANodeGoesToADetachFirst(t *testing.T) {
	table := openTable(10, 1, true)
	first := taken(t, table, "first", volume.AttachLane, on("node", "1"))
	table.Add(volume.ClaimKey("second"), volume.AttachLane, on("node", "2"))
	if got := started(table); len(got) > 0 {
		t.Fatalf("%v were started beside the only one that the node may have", got)
	}
	table.Add(volume.ClaimKey("third"), volume.DetachLane, on("node", "3"))
	if got := started(table); len(got) > 0 {
		t.Fatalf("%v were started beside the only one that the node may have", got)
	}
	for _, name := range []string{"second", "third"} {
		if v := look(t, table, name); v.State != volume.Ready || v.Wait.Kind != volume.WaitNode {
			t.Errorf("%s: %+v, want it to wait for the node", name, v)
		}
	}
	table.Done(first)
	for _, want := range []string{"third", "second"} {
		table.Done(take(t, table, volume.ClaimKey(want)))
	}
	if left := table.Remains(); left != "" {
		t.Errorf("left at the end: %s", left)
	}
}

func TestFullNodeDoesNotKeepOthersWaiting(t *testing.T) {
	table := openTable(10, 1, true)
	taken(t, table, "first", volume.AttachLane, on("full", "1"))
	for _, name := range []string{"2", "3", "4"} {
		table.Add(volume.ClaimKey(name), volume.AttachLane, on("full", name))
	}
	table.Add(volume.ClaimKey("elsewhere"), volume.AttachLane, on("empty", "5"))
	table.Add(volume.ClaimKey("nowhere"), volume.AttachLane, only("6", "n"))
	if got := started(table); !slices.Equal(got, []string{"elsewhere", "nowhere"}) {
		t.Errorf("%v were started, want those that are not on the full node", got)
	}
}

func TestEntryThatWaitsForADetachKeepsNoSlot(t *testing.T) {
	table := openTable(10, 1, true)
	late := volume.Place{Node: "node"}
	attach := taken(t, table, "attach", volume.AttachLane, late)
	table.Add(volume.ClaimKey("detach"), volume.DetachLane, on("node", "v"))
	if got := started(table); len(got) > 0 {
		t.Fatalf("%v were started beside the only one that the node may have", got)
	}
	if table.Reserve(attach, on("node", "v")) {
		t.Fatal("the attach does not wait for the detach")
	}
	detach := take(t, table, volume.ClaimKey("detach"))
	if got := started(table); len(got) > 0 {
		t.Errorf("%v runs beside the detach", got)
	}
	table.Done(detach)
	table.Done(take(t, table, attach.Key))
	if left := table.Remains(); left != "" {
		t.Errorf("left at the end: %s", left)
	}
}

func TestRaisedLimitLetsThoseThatWaitBegin(t *testing.T) {
	for name, c := range map[string]struct {
		limit int
		want  []string
	}{"to two": {2, []string{"b"}}, "to as many as there are": {5, []string{"c", "b"}}, "to none": {0, []string{"c", "b"}}} {
		t.Run(name, func(t *testing.T) {
			table := openTable(10, 1, true)
			for _, name := range []string{"a", "b", "c"} {
				table.Add(volume.ClaimKey(name), volume.AttachLane, on("node", name))
			}
			if got := started(table); !slices.Equal(got, []string{"a"}) {
				t.Fatalf("%v were started, want a only", got)
			}
			table.SetLimits(10, c.limit, true)
			if got := started(table); !slices.Equal(got, c.want) {
				t.Errorf("%v were started after the limit was raised, want %v", got, c.want)
			}
		})
	}
}

func TestLoweredLimitHoldsForThoseThatComeAfterIt(t *testing.T) {
	table := openTable(10, 3, true)
	var running []*volume.Entry
	for _, name := range []string{"a", "b", "c"} {
		running = append(running, taken(t, table, name, volume.AttachLane, on("node", name)))
	}
	table.SetLimits(10, 1, true)
	table.Add(volume.ClaimKey("d"), volume.AttachLane, on("node", "d"))
	for _, e := range running {
		if got := started(table); len(got) > 0 {
			t.Fatalf("%v were started, and the node has its one", got)
		}
		table.Done(e)
	}
	take(t, table, volume.ClaimKey("d"))
}

func TestEntryThatIsAskedForAgainWaitsInNoOldList(t *testing.T) {
	table := openTable(10, 1, true)
	first := taken(t, table, "first", volume.AttachLane, on("node", "v"))
	table.Add(volume.ClaimKey("second"), volume.AttachLane, on("elsewhere", "v"))
	table.Add(volume.ClaimKey("third"), volume.AttachLane, on("node", "w"))
	if got := started(table); len(got) > 0 {
		t.Fatalf("%v were started, want none", got)
	}
	table.Add(volume.ClaimKey("second"), volume.AttachLane, on("another", "x"))
	table.Add(volume.ClaimKey("third"), volume.AttachLane, on("third", "y"))
	table.Done(take(t, table, volume.ClaimKey("second")))
	table.Done(take(t, table, volume.ClaimKey("third")))
	table.Done(first)
	if e := table.Take(time.Now()); e != nil {
		t.Errorf("%v runs once more", e.Key)
	}
	if left := table.Remains(); left != "" {
		t.Errorf("left at the end: %s", left)
	}
}

// Whoever has a place and cannot use it any more must let others have it.
func TestEntryThatIsBlockedBeforeItBeginsGivesItsSlotBack(t *testing.T) {
	table := openTable(10, 1, true)
	first := taken(t, table, "first", volume.AttachLane, on("node", "1"))
	table.Add(volume.ClaimKey("attach"), volume.AttachLane, on("node", "v"))
	table.Add(volume.ClaimKey("next"), volume.AttachLane, on("node", "w"))
	if got := started(table); len(got) > 0 {
		t.Fatalf("%v were started, want none", got)
	}
	table.Done(first) // the attach has the place now, and no worker has taken it
	table.Add(volume.ClaimKey("detach"), volume.DetachLane, on("elsewhere", "v"))
	if got := started(table); len(got) != 2 || !slices.Contains(got, "next") || !slices.Contains(got, "detach") {
		t.Errorf("%v were started, want the detach, and the next on the node", got)
	}
}
