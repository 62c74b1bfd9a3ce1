package volume_test

import (
	"fmt"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

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
				taken(t, table, "other", queue.AttachLane, shared("v", "b"))
				first := shared("v", "a")
				if late {
					first = queue.Place{}
				}
				table.Queue.Add(queue.AttachmentKey("published"), queue.AttachLane, first)
				e := next(table)
				if got := e != nil && (!late || table.Queue.MayCall(e, shared("v", "a"))); got != want {
					t.Errorf("runs beside another: %v, want %v", got, want)
				}
			})
		}
	}
}
