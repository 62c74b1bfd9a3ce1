package status

import (
	"slices"
	"testing"
)

// waits has a wait of each kind with what is known of it, and its text, which other programs
// show too.
var waits = []struct {
	wait Wait
	text string
}{
	{Wait{}, ""},
	{Wait{Kind: WaitForDetach, Node: "worker-7", VolumeAttachment: "csi-7"}, "waits for the detach from node worker-7"},
	{Wait{Kind: WaitForDetach, VolumeAttachment: "csi-7"}, "waits for the detach by csi-7"},
	{Wait{Kind: WaitForDanglingDetach, NodeID: "i-7"}, "waits for the detach from node ID i-7, where the volume is dangling"},
	{Wait{Kind: WaitForVolume}, "waits for other work on the same volume"},
	{Wait{Kind: WaitForNode}, "waits for other calls for the same node"},
	{Wait{Kind: WaitForWorker}, "waits for a worker of the driver"},
	{Wait{Kind: WaitForDriver, DriverState: "Lost", Reason: "connection refused."}, "waits: the driver is Lost: connection refused"},
	{Wait{Kind: WaitForConfiguration}, "waits: no driver of this name is configured here"},
}

func TestEveryWaitHasItsText(t *testing.T) {
	var kinds []WaitKind
	for _, tt := range waits {
		if got := tt.wait.String(); got != tt.text {
			t.Errorf("%+v is told as %q, want %q", tt.wait, got, tt.text)
		}
		kinds = append(kinds, tt.wait.Kind)
	}
	for _, kind := range []WaitKind{WaitForDetach, WaitForDanglingDetach, WaitForVolume, WaitForNode, WaitForWorker, WaitForDriver, WaitForConfiguration} {
		if !slices.Contains(kinds, kind) {
			t.Errorf("this test does not know the kind %q", kind)
		}
	}
}
