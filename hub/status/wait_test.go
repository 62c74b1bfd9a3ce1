package status_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// waits has a wait of each kind with what is known of it, and its text, which other programs
// show too.
var waits = []struct {
	wait status.Wait
	text string
}{
	{status.Wait{}, ""},
	{status.Wait{Kind: status.WaitForDetach, Node: "worker-7", VolumeAttachment: "csi-7"}, "waits for the detach from node worker-7"},
	{status.Wait{Kind: status.WaitForDetach, VolumeAttachment: "csi-7"}, "waits for the detach by csi-7"},
	{status.Wait{Kind: status.WaitForDanglingDetach, NodeID: "i-7"}, "waits for the detach from node ID i-7, where the volume is dangling"},
	{status.Wait{Kind: status.WaitForVolume}, "waits for other work on the same volume"},
	{status.Wait{Kind: status.WaitForNode}, "waits for other calls for the same node"},
	{status.Wait{Kind: status.WaitForWorker}, "waits for a worker of the driver"},
	{status.Wait{Kind: status.WaitForDriver, DriverState: "Lost", Reason: "connection refused."}, "waits: the driver is Lost: connection refused"},
	{status.Wait{Kind: status.WaitForConfiguration}, "waits: no driver of this name is configured here"},
}

func TestEveryWaitHasItsText(t *testing.T) {
	var kinds []status.WaitKind
	for _, tt := range waits {
		if got := tt.wait.String(); got != tt.text {
			t.Errorf("%+v is told as %q, want %q", tt.wait, got, tt.text)
		}
		kinds = append(kinds, tt.wait.Kind)
	}
	for _, kind := range status.WaitKinds {
		if !slices.Contains(kinds, kind) {
			t.Errorf("this test does not know the kind %q", kind)
		}
	}
}

func TestWaitIsTheSameBeyondTheAPI(t *testing.T) {
	for _, tt := range waits {
		a := status.Attachment{Name: "csi-1"}
		a.Waiting = tt.wait
		sent, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		var got status.Attachment
		if err := json.Unmarshal(sent, &got); err != nil || !reflect.DeepEqual(got, a) {
			t.Errorf("%+v came as %+v, %v", a, got, err)
		}
		if there := strings.Contains(string(sent), `"wait`); there != (tt.text != "") {
			t.Errorf("waits for %q: %s", tt.text, sent)
		}
	}
}

func TestDiagnosisOfAWaitSaysWhatToDo(t *testing.T) {
	d := status.Driver{Name: "a.example.com", State: "Ready", Up: true, Mode: "active", Workers: 20, Busy: 17, Lease: status.Lease{Mine: true}, Settings: status.Settings{MaxPerNode: 3}}
	for _, tt := range []struct {
		wait status.Wait
		do   []string // parts of what is advised
	}{
		{status.Wait{Kind: status.WaitForDetach, Node: "worker-7", VolumeAttachment: "csi-7"}, []string{"Run csi-attach-hub explain csi-7 to see why the volume is not detached yet."}},
		{status.Wait{Kind: status.WaitForDetach, VolumeAttachment: "csi-7"}, []string{"Run csi-attach-hub explain csi-7 to see why the volume is not detached yet."}},
		{status.Wait{Kind: status.WaitForDanglingDetach, NodeID: "i-7"}, []string{"explain driver"}},
		{status.Wait{Kind: status.WaitForVolume}, []string{"one call for a volume at a time"}},
		{status.Wait{Kind: status.WaitForNode}, []string{"maxPerNode: it is 3"}},
		{status.Wait{Kind: status.WaitForWorker}, []string{"17 of 20"}},
		{status.Wait{Kind: status.WaitForDriver, DriverState: "Lost", Reason: "gone"}, nil},
		{status.Wait{}, nil},
	} {
		a := status.Attachment{Name: "csi-1", Driver: d.Name, Node: "worker-1", State: status.Waiting, Operation: status.Attach, Waiting: tt.wait}
		all := status.Diagnose(status.DiagnosisInput{Attachment: a, Driver: &d})
		do := strings.Join(all[0].Actions, "\n")
		if len(all) != 1 || !strings.Contains(all[0].Fact, tt.wait.String()) || tt.do == nil && tt.wait.Kind != "" && do != "" {
			t.Errorf("%+v: %q, advice %q", tt.wait, all[0].Fact, do)
		}
		for _, part := range tt.do {
			if !strings.Contains(do, part) {
				t.Errorf("%+v: advice %q, want %q", tt.wait, do, part)
			}
		}
	}
}
