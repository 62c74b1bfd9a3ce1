package volume_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// fullNode returns a Table in which the driver has refused the attach "refused" on the node "full", and in which
// "refused" and others wait there, in this order.
func fullNode(t *testing.T, others ...string) *volume.Table {
	t.Helper()
	table := openTable(10, 0, true)
	e := taken(t, table, "refused", volume.AttachLane, on("full", "refused"))
	table.Published(e, volume.NoPlace)
	table.DoneFor(e, volume.AttachLane, 0)
	for _, name := range others {
		time.Sleep(time.Millisecond)
		table.Add(volume.ClaimKey(name), volume.AttachLane, on("full", name))
	}
	if got := started(table); len(got) > 0 {
		t.Fatalf("%v were started, and the node is full", got)
	}
	return table
}

// line returns those that wait for a place on the node "full".
func line(table *volume.Table) []string {
	for _, n := range table.FullNodes() {
		if n.Node == "full" {
			return n.Line
		}
	}
	return nil
}

func inLineTest(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func TestAttachesToAFullNodeGoTheOldestFirst(t *testing.T) {
	inLineTest(t, func(t *testing.T) {
		table := fullNode(t, "b", "a")
		table.Add(volume.ClaimKey("lost"), volume.DriftLane, on("full", "lost"))
		table.Add(volume.ClaimKey("elsewhere"), volume.AttachLane, on("other", "elsewhere"))
		table.Add(volume.ClaimKey("detach"), volume.DetachLane, on("full", "detach"))
		if got := started(table); !slices.Equal(got, []string{"elsewhere", "detach"}) && !slices.Equal(got, []string{"detach", "elsewhere"}) {
			t.Errorf("%v were started, want the attach elsewhere and the detach", got)
		}
		if got, want := line(table), []string{"refused", "b", "a", "lost"}; !slices.Equal(got, want) {
			t.Errorf("%v are in line, want %v", got, want)
		}
		if v := look(t, table, "a"); v.Wait != (volume.Wait{Kind: volume.WaitCapacity, Position: 3}) {
			t.Errorf("%+v, want a to be the third in line", v)
		}
		for _, want := range []string{"refused", "b", "a", "lost"} {
			table.DetachedFrom("full")
			e := take(t, table, volume.ClaimKey(want))
			table.Published(e, volume.Succeeded)
			table.Done(e)
			if got := started(table); len(got) > 0 {
				t.Errorf("%v were started after %s, and one volume was detached", got, want)
			}
		}
	})
}

func TestPermitOfAnEntryThatLeavesGoesToTheNext(t *testing.T) {
	for name, leave := range map[string]func(t *testing.T, table *volume.Table, e *volume.Entry){
		"done": func(_ *testing.T, table *volume.Table, e *volume.Entry) { table.Done(e) },
		"failed": func(_ *testing.T, table *volume.Table, e *volume.Entry) {
			table.DoneFor(e, volume.AttachLane, time.Hour)
		},
		"postpone": func(_ *testing.T, table *volume.Table, e *volume.Entry) {
			table.Postpone(e, volume.AttachLane, time.Hour)
		},
		"deleted": func(_ *testing.T, table *volume.Table, e *volume.Entry) {
			table.DoneFor(e, volume.DetachLane, time.Hour)
		},
		"blocked": func(t *testing.T, table *volume.Table, e *volume.Entry) {
			table.Add(volume.ClaimKey("before"), volume.DetachLane, volume.Place{Target: attach.Target{VolumeHandle: "refused", NodeID: "x"}, Node: "other"})
			if table.Reserve(e, on("full", "refused")) {
				t.Fatal("the attach does not wait for the detach")
			}
			take(t, table, volume.ClaimKey("before"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inLineTest(t, func(t *testing.T) {
				table := fullNode(t, "next", "last")
				table.DetachedFrom("full")
				leave(t, table, take(t, table, volume.ClaimKey("refused")))
				e := take(t, table, volume.ClaimKey("next"))
				table.Published(e, volume.Succeeded)
				table.Done(e)
				if got := started(table); len(got) > 0 {
					t.Errorf("%v were started, and one volume was detached", got)
				}
			})
		})
	}
	for name, leave := range map[string]func(table *volume.Table){
		"deleted": func(table *volume.Table) {
			table.Add(volume.ClaimKey("refused"), volume.DetachLane, on("full", "refused"))
		},
		"another node": func(table *volume.Table) {
			table.Add(volume.ClaimKey("refused"), volume.AttachLane, on("other", "refused"))
		},
	} {
		t.Run(name+" before it starts", func(t *testing.T) {
			inLineTest(t, func(t *testing.T) {
				table := fullNode(t, "next", "last")
				table.ShutLanes()
				table.DetachedFrom("full")
				started(table)
				leave(table)
				table.OpenLanes()
				time.Sleep(10 * time.Second)
				got := started(table)
				slices.Sort(got)
				if !slices.Equal(got, []string{"next", "refused"}) {
					t.Errorf("%v were started, want the one that has left and the next in line", got)
				}
			})
		})
	}
}

func TestVolumeThatAloneIsRefusedDoesNotBlockTheOthers(t *testing.T) {
	inLineTest(t, func(t *testing.T) {
		table := fullNode(t, "b", "c")
		var order []string
		for range 5 {
			time.Sleep(time.Minute)
			for {
				e := table.Take(time.Now())
				if e == nil {
					break
				}
				order = append(order, e.Key.Name)
				if e.Key.Name == "refused" {
					table.Published(e, volume.NoPlace)
					table.DoneFor(e, volume.AttachLane, 0)
					continue
				}
				table.Published(e, volume.Succeeded)
				table.Done(e)
			}
		}
		if want := []string{"refused", "b", "c", "refused", "refused", "refused", "refused"}; !slices.Equal(order, want) {
			t.Errorf("%v were tried, want %v", order, want)
		}
	})
}

func TestNodeIsForgottenWhenNobodyWaits(t *testing.T) {
	inLineTest(t, func(t *testing.T) {
		table := fullNode(t)
		table.Add(volume.ClaimKey("refused"), volume.DetachLane, on("full", "refused"))
		table.Done(take(t, table, volume.ClaimKey("refused")))
		if len(table.FullNodes()) != 1 {
			t.Error("the node is forgotten at once: the next attaches would all be refused")
		}
		time.Sleep(time.Minute)
		table.Take(time.Now())
		if left := table.Remains(); left != "" {
			t.Errorf("left at the end: %s", left)
		}
	})
}

// A volume that waits for a place on one node must not be withheld from another node.
func TestHeldAttachDoesNotWithholdItsVolume(t *testing.T) {
	inLineTest(t, func(t *testing.T) {
		table := fullNode(t, "v")
		table.Add(volume.ClaimKey("elsewhere"), volume.AttachLane, on("other", "v"))
		e := take(t, table, volume.ClaimKey("elsewhere"))
		table.DetachedFrom("full")
		table.DetachedFrom("full")
		if got := started(table); !slices.Equal(got, []string{"refused"}) {
			t.Errorf("%v were started, and the volume of v has a call in flight", got)
		}
		table.Done(e)
		if got := started(table); !slices.Equal(got, []string{"v"}) {
			t.Errorf("%v were started, want v to go when its volume is free", got)
		}
	})
}

// These had been let go before the driver said that the node is full.
func TestAttachThatHasNotBegunWaitsOnceItsNodeIsFull(t *testing.T) {
	inLineTest(t, func(t *testing.T) {
		table := openTable(10, 0, true)
		first := taken(t, table, "first", volume.AttachLane, on("full", "first"))
		second := taken(t, table, "second", volume.AttachLane, on("full", "second"))
		time.Sleep(time.Millisecond)
		table.Add(volume.ClaimKey("third"), volume.AttachLane, on("full", "third"))
		table.Published(first, volume.NoPlace)
		table.DoneFor(first, volume.AttachLane, 0)
		if got := started(table); len(got) > 0 {
			t.Errorf("%v were started, and the node is full", got)
		}
		if table.Reserve(second, on("full", "second")) {
			t.Error("the worker may call the driver, and the node is full")
		}
		if got, want := line(table), []string{"first", "second", "third"}; !slices.Equal(got, want) {
			t.Errorf("%v are in line, want %v", got, want)
		}
	})
}
