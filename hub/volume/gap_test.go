package volume_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// Somebody else works for the driver, and may die before it sees what has vanished.
func TestStandbyRemembersWhatAVanishedVolumeAttachmentMayHaveLeftPublished(t *testing.T) {
	table := volume.NewTable("f")
	table.ObserveDeletion(volume.Identity{Name: "gone", UID: "0", Node: "node"}, recorded("a"), time.Now())
	if table.OwesDetach() {
		t.Error("it is owed by this process, and another has to see to it")
	}
	table.Forget(time.Now()) // what happens when a driver is taken over
	table.Queue.Begin()
	table.Queue.SetLimits(queue.Limits{Workers: 1})
	table.Queue.Open()
	if got := started(table); len(got) > 0 {
		t.Errorf("%v began before the VolumeAttachments were read", got)
	}
	table.Confirm()
	if !table.OwesDetach() {
		t.Error("it is not owed by this process")
	}
}

func TestTakeoverForgetsWhatAnotherMustHaveSeenToByNow(t *testing.T) {
	for _, confirmed := range []bool{false, true} {
		t.Run(fmt.Sprintf("confirmed %v", confirmed), func(t *testing.T) {
			table, began := volume.NewTable("f"), time.Now()
			table.ObserveDeletion(volume.Identity{Name: "gone", UID: "0"}, recorded("a"), began)
			if confirmed {
				table.Confirm()
			}
			table.Forget(began.Add(24 * time.Hour))
			wantDangling(t, table, "a")
			table.Forget(began.Add(24*time.Hour + 1))
			if confirmed {
				wantDangling(t, table, "a") // nobody else knows of it
				return
			}
			wantDangling(t, table)
		})
	}
}

// The first deletion counts: its volume has waited for the longest.
func TestWhatVanishesOnceMoreAtATargetIsObservedOnce(t *testing.T) {
	table, began := volume.NewTable("f"), time.Now()
	table.ObserveDeletion(volume.Identity{Name: "first", UID: "1"}, recorded("a"), began)
	table.ObserveDeletion(volume.Identity{Name: "second", UID: "2"}, recorded("a"), began.Add(time.Hour))
	if u, _ := table.Dangling(at("a")); u.FormerOwner.Name != "first" || u.Unconfirmed != began {
		t.Errorf("left by %s, unconfirmed since %v; want the first", u.FormerOwner.Name, u.Unconfirmed.Sub(began))
	}
}

// The lease was lost, and another process had it, before a worker looked.
func TestWhatVanishedJustBeforeTheLeaseWasLostIsNotForgotten(t *testing.T) {
	table := openTable(10, 0, true)
	for name, id := range map[string]string{"left": "a", "detached": "", "exists": "c"} {
		va := attachment(name, "uid of left")
		e := taken(t, table, name, queue.AttachLane, only("v of "+name, id))
		_ = e // its worker does not end
		c := table.Open(va)
		if id != "" {
			publish(table, c, recorded(id))
		}
		if name != "exists" {
			table.Gone(volume.IdentityOf(va), nil, false)
		}
	}
	now := time.Now()
	table.Close()
	table.Forget(now)
	wantDangling(t, table, "a")
	if u, _ := table.Dangling(at("a")); u.Unconfirmed != now {
		t.Errorf("unconfirmed since %v, want since the lease was lost: another process may have seen to it", u.Unconfirmed)
	}
	if names := table.Attachments(); len(names) > 0 {
		t.Errorf("%v is remembered besides", names)
	}
}
