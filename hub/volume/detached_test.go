package volume_test

import (
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

func TestAttachThatBacksOffIsTriedAgainOnceItsVolumeWasDetachedElsewhere(t *testing.T) {
	byVolumeAttachment := func(_ *testing.T, table *volume.Table) {
		unpublish(table, table.Open(attachment("other", "2")), at("a"), volume.Succeeded)
	}
	detached := func(t *testing.T, table *volume.Table) {
		e := take(t, table, danglingKey("a"))
		table.Detached(at("a"), "node-a")
		table.Queue.End(e, queue.Finished)
	}
	leftThere := func(t *testing.T, table *volume.Table) {
		table.ObserveDeletion(volume.Identity{Name: "gone", UID: "0"}, recorded("a"), time.Now())
		detached(t, table)
	}
	onlyListed := func(t *testing.T, table *volume.Table) {
		table.AddDanglingFromList(volume.Identity{}, recorded("a"))
		detached(t, table)
	}
	for name, c := range map[string]struct {
		dest   queue.Destination
		detach func(*testing.T, *volume.Table)
		want   queue.State
	}{
		"by a VolumeAttachment":             {only("v", "b"), byVolumeAttachment, queue.Ready},
		"where a VolumeAttachment left it":  {only("v", "b"), leftThere, queue.Ready},
		"another volume":                    {only("w", "b"), byVolumeAttachment, queue.Delayed},
		"a multi-node volume":               {shared("v", "b"), byVolumeAttachment, queue.Delayed},
		"where only a listing has shown it": {only("v", "b"), onlyListed, queue.Delayed},
	} {
		t.Run(name, func(t *testing.T) {
			table := openTable(10, 0, true)
			key := queue.AttachmentKey("refused")
			table.Queue.Add(key, queue.AttachLane, c.dest)
			table.Queue.End(take(t, table, key), queue.BackOff(queue.AttachLane, time.Hour))
			c.detach(t, table)
			if v, _ := table.Queue.Look(key); v.State != c.want {
				t.Errorf("state %v, want %v", v.State, c.want)
			}
		})
	}
}
