package volume_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

func recorded(nodeID string) attach.Record {
	return attach.Record{Target: at(nodeID), Nodes: attach.SingleNode}
}

func danglingKey(nodeID string) queue.Key {
	return queue.Key{Kind: queue.DanglingKind, Target: at(nodeID)}
}

// unpublish has a VolumeAttachment unpublish its volume.
func unpublish(table *volume.Table, c *volume.Attachment, target attach.Target, r volume.Result) {
	p, e := volume.Run{Plan: attach.Plan{Operation: attach.Detaching, Record: attach.Record{Target: target}}}, volume.Effect{Kind: volume.Unpublish, Target: target}
	table.Start(c, p, e)
	table.Apply(c, &p, e, volume.Outcome{Result: r})
}

// danglingAt returns the node IDs of the dangling publications.
func danglingAt(table *volume.Table) []string {
	var ids []string
	for _, u := range table.AllDangling() {
		ids = append(ids, u.Target.NodeID)
	}
	slices.Sort(ids)
	return ids
}

func wantDangling(t *testing.T, table *volume.Table, want ...string) {
	t.Helper()
	if got := danglingAt(table); !slices.Equal(got, want) {
		t.Errorf("dangling at %v, want %v", got, want)
	}
}

func TestVanishedObjectLeavesItsPublicationDanglingAndHasItDetached(t *testing.T) {
	table := openTable(10, 0, true)
	va := attachment("va", "1")
	publish(table, table.Open(va), recorded("a"))
	table.Gone(volume.IdentityOf(va), nil, false)
	wantDangling(t, table, "a")
	if len(table.Attachments()) > 0 {
		t.Error("an object is known that is gone")
	}
	u, ok := table.Dangling(at("a"))
	if !ok || u.FormerOwner != volume.IdentityOf(va) || !u.Unconfirmed.IsZero() {
		t.Errorf("%+v, want it left by the VolumeAttachment", u)
	}
	if v, _ := table.Queue.Look(take(t, table, danglingKey("a")).Key); v.Lane != queue.DetachLane {
		t.Errorf("its entry is in lane %v, want detach", v.Lane)
	}
}

// Until the worker has ended nobody can say what it leaves.
func TestObjectThatVanishesWhileItsWorkerRunsLeavesItsPublicationDanglingWhenTheRunEnds(t *testing.T) {
	for name, end := range map[string]func(*volume.Table, *queue.Item){
		"done": func(table *volume.Table, e *queue.Item) { table.Queue.End(e, queue.Finished) },
		"backs off": func(table *volume.Table, e *queue.Item) {
			table.Queue.End(e, queue.BackOff(queue.AttachLane, time.Hour))
		},
		"postponed": func(table *volume.Table, e *queue.Item) { table.Queue.End(e, queue.RequeueAfter(e.Lane, time.Hour)) },
		"missing": func(table *volume.Table, e *queue.Item) {
			table.Missing(e.Key.Name, "")
			table.Queue.End(e, queue.Finished)
		},
	} {
		for _, read := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, read as gone %v", name, read), func(t *testing.T) {
				table := openTable(10, 0, true)
				va := attachment("va", "1")
				e := taken(t, table, va.Name, queue.AttachLane, only("v", "a"))
				c := table.Open(va)
				if read {
					table.Missing(va.Name, va.UID)
				} else {
					table.Gone(volume.IdentityOf(va), nil, false)
				}
				publish(table, c, recorded("a"))
				wantDangling(t, table)
				if !table.OwesDetach() {
					t.Error("nothing is owed, and the worker may leave something")
				}
				attach := queue.AttachmentKey("elsewhere")
				table.Queue.Add(attach, queue.AttachLane, only("v", "b"))
				if got := started(table); len(got) > 0 {
					t.Errorf("%v began before it is known what is left", got)
				}
				end(table, e)
				wantDangling(t, table, "a")
				// The entry of the object looks once more: another one may have its name.
				got := map[queue.Key]*queue.Item{}
				for e := next(table); e != nil; e = next(table) {
					got[e.Key] = e
					if e.Key == queue.AttachmentKey("va") {
						table.Queue.End(e, queue.Finished)
					}
				}
				detach := got[danglingKey("a")]
				if detach == nil || got[attach] != nil {
					t.Fatalf("%v began, want the detach, and not the attach elsewhere", got)
				}
				u, _ := table.Dangling(at("a"))
				table.Resolve(u)
				table.Queue.End(detach, queue.Finished)
				take(t, table, attach)
			})
		}
	}
}

func TestPublishAtTheTargetTakesADanglingPublicationOver(t *testing.T) {
	for name, running := range map[string]bool{"before its detach began": false, "while its detach runs": true} {
		t.Run(name, func(t *testing.T) {
			table := openTable(10, 0, true)
			table.ObserveDeletion(volume.Identity{Name: "gone", UID: "0"}, recorded("a"), time.Now())
			var detach *queue.Item
			if running {
				detach = take(t, table, danglingKey("a"))
			}
			va := attachment("va", "1")
			publish(table, table.Open(va), recorded("a"))
			wantDangling(t, table)
			if table.Queue.Has(danglingKey("a")) != running {
				t.Error("its detach is still to be done")
			}
			if running {
				table.Queue.End(detach, queue.Finished)
			}
			if left := table.Remains(); left != "" {
				t.Errorf("left at the end: %s", left)
			}
			table.Gone(volume.IdentityOf(va), nil, false)
			wantDangling(t, table, "a")
		})
	}
}

func TestPublishElsewhereTakesNoDanglingPublicationOver(t *testing.T) {
	table := openTable(10, 0, true)
	table.ObserveDeletion(volume.Identity{Name: "gone", UID: "0"}, recorded("a"), time.Now())
	publish(table, table.Open(attachment("va", "1")), recorded("b"))
	wantDangling(t, table, "a")
}

func TestUnpublishAtTheTargetResolvesADanglingPublicationUnlessItFails(t *testing.T) {
	for result, want := range map[volume.Result][]string{volume.Succeeded: {"b"}, volume.Failed: {"a", "b"}, volume.NotDone: {"a", "b"}} {
		t.Run(fmt.Sprint(result), func(t *testing.T) {
			table := openTable(10, 0, true)
			for _, id := range []string{"a", "b"} {
				table.ObserveDeletion(volume.Identity{Name: "gone", UID: "0"}, recorded(id), time.Now())
			}
			unpublish(table, table.Open(attachment("va", "1")), at("a"), result)
			wantDangling(t, table, want...)
		})
	}
}

func TestAttachOfAVolumeThatIsLeftElsewhereWaitsForTheDetachAndForNoOther(t *testing.T) {
	for name, c := range map[string]struct {
		dest queue.Destination
		want bool
	}{
		"elsewhere":                  {only("v", "b"), true},
		"there":                      {only("v", "a"), false},
		"another volume":             {only("w", "b"), false},
		"a multi-node one elsewhere": {shared("v", "b"), false},
	} {
		t.Run(name, func(t *testing.T) {
			table := openTable(10, 0, true)
			table.Queue.Shut()
			table.ObserveDeletion(volume.Identity{Name: "gone", UID: "0"}, recorded("a"), time.Now())
			table.Queue.Add(queue.AttachmentKey("next"), queue.AttachLane, c.dest)
			got := look(t, table, "next").Wait
			if waits := got == (queue.Wait{Kind: queue.WaitDetach, Detach: danglingKey("a")}); waits != c.want {
				t.Errorf("%+v, waits for the detach: %v, want %v", got, waits, c.want)
			}
		})
	}
}

// A dangling publication of a multi-node volume is detached beside others only if it was surely
// published as one.
func TestDanglingPublicationIsSharedIfItWasPublishedSo(t *testing.T) {
	for nodes, want := range map[attach.NodeMode]bool{attach.MultiNode: true, attach.SingleNode: false, attach.UnknownNodes: false} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			table := openTable(10, 0, true)
			taken(t, table, "other", queue.AttachLane, shared("v", "b"))
			table.ObserveDeletion(volume.Identity{Name: "gone", UID: "0"}, attach.Record{Target: at("a"), Nodes: nodes}, time.Now())
			if got := next(table) != nil; got != want {
				t.Errorf("detached beside the other: %v, want %v", got, want)
			}
		})
	}
}

// It wants the volume at another target, and the driver does not unpublish it at the previous one.
func TestVolumeAttachmentThatMovesOnLeavesItsPublicationDangling(t *testing.T) {
	table := openTable(10, 0, true)
	va := attachment("va", "1")
	c := table.Open(va)
	publish(table, c, recorded("a"))
	p, e := volume.Run{Plan: attach.Plan{Operation: attach.Attaching, Record: attach.Record{Target: at("b")}}}, volume.Effect{Kind: volume.Disown, Target: at("a")}
	table.Start(c, p, e)
	table.Apply(c, &p, e, volume.Outcome{})
	wantDangling(t, table, "a")
	if !slices.Equal(table.Look("va", "1").Disowned, []attach.Target{at("a")}) || table.Look("va", "2").Disowned != nil {
		t.Error("it is not known who has left what")
	}
	table.Restore(c, recorded("a")) // its object still says so
	if got := *c; got.MayBePublished() {
		t.Errorf("%+v, want it to own nothing: it has left that", got)
	}
	table.Restore(c, recorded("b"))
	if got := *c; got.Target != at("b") {
		t.Errorf("%+v, want what its object records", got)
	}
}

func TestFinalizerOfAPersistentVolumeIsWithheldAsLongAsSomethingMayBeLeftButNotForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stuckAfter = time.Hour
		table := openTable(10, 0, true)
		check := func(when string, named, published bool) {
			t.Helper()
			if c, p := table.Withholds("pv of va", "v", stuckAfter, time.Now()); c != named || p != published {
				t.Errorf("%s: named %v, published %v; want %v and %v", when, c, p, named, published)
			}
			if c, p := table.Withholds("another", "w", stuckAfter, time.Now()); c || p {
				t.Errorf("%s: another PersistentVolume is withheld", when)
			}
		}
		check("at first", false, false)
		va := attachment("va", "1")
		e := taken(t, table, "va", queue.AttachLane, only("v", "a"))
		publish(table, table.Open(va), recorded("a"))
		time.Sleep(2 * stuckAfter)
		check("while it is attached", true, false)
		table.Gone(volume.IdentityOf(va), nil, false)
		time.Sleep(stuckAfter - 1)
		check("while its worker runs", true, false)
		time.Sleep(time.Nanosecond)
		check("when that takes too long", false, false)
		table.Queue.End(e, queue.Finished)
		check("when it is dangling", false, true)
		time.Sleep(stuckAfter - 1)
		check("still", false, true)
		time.Sleep(time.Nanosecond)
		check("when that takes too long", false, false)
		wantDangling(t, table, "a")
	})
}
