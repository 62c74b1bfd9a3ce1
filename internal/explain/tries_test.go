package explain_test

import (
	"strings"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

func TestWaitForADetachIsExplainedWithoutItsText(t *testing.T) {
	for name, tt := range map[string]struct {
		wait        status.Wait
		text        string
		stop, words string
	}{
		"from a node":    {status.Wait{Kind: status.WaitForDetach, Node: "node-3", VolumeAttachment: "csi-3"}, "gibberish", "waiting: WaitingForDetach VolumeAttachment csi-1", "from node node-3|csi-attach-hub explain csi-3"},
		"from a node ID": {status.Wait{Kind: status.WaitForUnowned, NodeID: "id-3"}, "gibberish", "waiting: WaitingForDetach VolumeAttachment csi-1", "at node ID id-3|csi-attach-hub status"},
		"for a worker":   {status.Wait{Kind: status.WaitForWorker}, "the detach from node node-3", "waiting: Queued VolumeAttachment csi-1", "waits for the detach from node node-3"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.seen.Waiting, w.seen.WaitsFor = tt.wait, tt.text
			report, err := w.asked(t, "csi-1")
			if got := answer(report, err); got != tt.stop {
				t.Errorf("got %q, want %q", got, tt.stop)
			}
			for word := range strings.SplitSeq(tt.words, "|") {
				if !strings.Contains(report.Text(), word) {
					t.Errorf("%q is not in\n%s", word, report.Text())
				}
			}
		})
	}
}
