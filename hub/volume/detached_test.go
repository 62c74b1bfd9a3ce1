package volume_test

import (
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

func TestAttachThatBacksOffIsTriedAgainOnceItsVolumeWasDetachedElsewhere(t *testing.T) {
	for name, detach := range map[string]func(*volume.Table){
		"by a VolumeAttachment": func(table *volume.Table) {
			unpublish(table, table.Open(attachment("other", "2")), at("a"), volume.Succeeded)
		},
		"by nobody's": func(table *volume.Table) { table.Detached(at("a"), "node-a") },
	} {
		t.Run(name, func(t *testing.T) {
			for where, c := range map[string]struct {
				place volume.Place
				want  volume.State
			}{
				"that volume":         {only("v", "b"), volume.Ready},
				"another volume":      {only("w", "b"), volume.Delayed},
				"a multi-node volume": {shared("v", "b"), volume.Delayed},
			} {
				table := openTable(10, 0, true)
				key := volume.ClaimKey("refused")
				table.Add(key, volume.AttachLane, c.place)
				table.DoneFor(take(t, table, key), volume.AttachLane, time.Hour)
				detach(table)
				if v, _ := table.Look(key); v.State != c.want {
					t.Errorf("%s: state %v, want %v", where, v.State, c.want)
				}
			}
		})
	}
}
