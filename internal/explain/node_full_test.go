package explain_test

import (
	"strings"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

func TestFullNodeIsSaidToBeFull(t *testing.T) {
	w := crowd()
	w.served.FullNodes = []status.FullNode{
		{Node: "node-2", Since: time.Now().Add(-time.Hour), Waiting: 1},
		{Node: "node-1", Limit: 25, Attached: 25, Since: time.Now().Add(-8 * time.Minute), Waiting: 4, Line: []string{"csi-1", "csi-2"}}}
	r, err := w.asked(t, "node/node-1")
	want := "Node node-1: can have no more volumes of driver " + driverName +
		" for 8m: its limit is 25 (allocatable.count of the CSINode), 25 volumes are attached; 4 VolumeAttachments wait for a place, first csi-1"
	if text := strings.Join(strings.Fields(r.Text()), " "); err != nil || !strings.Contains(text, want) || strings.Contains(text, "node-2") {
		t.Errorf("%v, want %q in:\n%s", err, want, r.Text())
	}
	w.served.FullNodes[1].Waiting = 0
	if r, err = w.asked(t, "node/node-1"); err != nil || strings.Contains(r.Text(), "no more volumes") {
		t.Errorf("%v, want nothing of a full node while nobody waits:\n%s", err, r.Text())
	}
}
