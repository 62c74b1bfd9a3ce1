package volume_test

import (
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

func TestAttachThatBacksOffIsTriedAgainOnceItsVolumeWasDetachedElsewhere(t *testing.T) {
	byVolumeAttachment := func(_ *testing.T, table *volume.Table) {
		unpublish(table, table.Open(attachment("other", "2")), at("a"), volume.Succeeded)
	}
	detached := func(t *testing.T, table *volume.Table) {
		e := take(t, table, unownedKey("a"))
		table.Detached(at("a"), "node-a")
		table.Done(e)
	}
	leftThere := func(t *testing.T, table *volume.Table) {
		table.ObserveDeletion(volume.Identity{Name: "gone", UID: "0"}, recorded("a"), time.Now())
		detached(t, table)
	}
	onlyListed := func(t *testing.T, table *volume.Table) {
		table.Found(volume.Identity{}, recorded("a"))
		detached(t, table)
	}
	for name, c := range map[string]struct {
		place  volume.Place
		detach func(*testing.T, *volume.Table)
		want   volume.State
	}{
		"by a VolumeAttachment":             {only("v", "b"), byVolumeAttachment, volume.Ready},
		"where a VolumeAttachment left it":  {only("v", "b"), leftThere, volume.Ready},
		"another volume":                    {only("w", "b"), byVolumeAttachment, volume.Delayed},
		"a multi-node volume":               {shared("v", "b"), byVolumeAttachment, volume.Delayed},
		"where only a listing has shown it": {only("v", "b"), onlyListed, volume.Delayed},
	} {
		t.Run(name, func(t *testing.T) {
			table := openTable(10, 0, true)
			key := volume.ClaimKey("refused")
			table.Add(key, volume.AttachLane, c.place)
			table.DoneFor(take(t, table, key), volume.AttachLane, time.Hour)
			c.detach(t, table)
			if v, _ := table.Look(key); v.State != c.want {
				t.Errorf("state %v, want %v", v.State, c.want)
			}
		})
	}
}
