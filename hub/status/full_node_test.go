package status

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// fullWorker returns a VolumeAttachment that waits for a place on node worker-1, third in line, and its driver.
func fullWorker(limit int, now time.Time) DiagnosisInput {
	a := Attachment{Name: "csi-3", Driver: "a.example.com", Node: "worker-1", State: Waiting, Operation: Attach, Claim: "shop/data-db-0", Tries: 2,
		LastError: "rpc error: code = ResourceExhausted desc = no slot"}
	a.Waiting = Wait{Kind: WaitForCapacity, Node: "worker-1", Limit: limit, Position: 3}
	d := &Driver{Name: "a.example.com", State: "Ready", Mode: "active", Up: true, Lease: Lease{Mine: true}, WaitingForCapacity: 4,
		Lanes:     []Lane{{Operation: Attach, Queued: 4, OldestSince: now.Add(-time.Hour)}},
		FullNodes: []FullNode{{Node: "worker-1", Limit: limit, Attached: 23, Since: now.Add(-8 * time.Minute), Waiting: 4, Line: []string{"csi-1", "csi-2", "csi-3", "csi-4"}}}}
	return DiagnosisInput{Attachment: a, Driver: d, Now: now}
}

func TestFullNodeIsDiagnosed(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		limit    int
		change   func(*DiagnosisInput)
		fact     string
		actions  []string
		commands []string
	}{
		"with a limit that is not reached": {25, func(in *DiagnosisInput) {
			in.Attachment.Pods = []string{"shop/db-0"}
		}, "Node worker-1 can have no more volumes of driver a.example.com for 8m: its limit is 25 (allocatable.count of the CSINode), 23 volumes are attached; " +
			"4 attaches wait for a place; this one is number 3 in line; the driver answered ResourceExhausted: no slot",
			[]string{"cordon node worker-1"},
			[]string{"kubectl cordon worker-1", "kubectl -n shop delete pod db-0"}},
		"without a limit": {0, func(*DiagnosisInput) {}, "its CSINode has no limit (allocatable.count), 23 volumes are attached",
			[]string{"cordon node worker-1"}, []string{"kubectl cordon worker-1", "kubectl -n shop delete pod POD"}},
		"never called": {23, func(in *DiagnosisInput) { in.Attachment.LastError, in.Attachment.Tries = "", 0 }, "this one is number 3 in line",
			nil, []string{"kubectl cordon worker-1", "kubectl -n shop delete pod POD"}},
	} {
		t.Run(name, func(t *testing.T) {
			in := fullWorker(c.limit, now)
			c.change(&in)
			found := Diagnose(in)
			if len(found) != 1 || found[0].Verdict != diagnosis.NodeFull {
				t.Fatalf("%+v, want that the node is full, and nothing else", found)
			}
			d := found[0]
			text, actions := d.Object+" "+d.Text(now), strings.Join(d.Actions, " ")
			if !strings.Contains(text, c.fact) {
				t.Errorf("%q, want %q", text, c.fact)
			}
			for _, want := range c.actions {
				if !strings.Contains(actions, want) {
					t.Errorf("%q, want %q", actions, want)
				}
			}
			if !slices.Equal(d.Commands, c.commands) {
				t.Errorf("%q with commands %q, want %q", actions, d.Commands, c.commands)
			}
		})
	}
}

func TestOtherErrorOfAnAttachThatWaitsForAPlaceIsNotHidden(t *testing.T) {
	in := fullWorker(25, time.Now())
	in.Attachment.LastError = "rpc error: code = Internal desc = array busy"
	found := Diagnose(in)
	if len(found) != 2 || found[0].Verdict != diagnosis.NodeFull || found[1].Verdict != diagnosis.BackendError || strings.Contains(found[0].Detail, "array") {
		t.Errorf("%+v, want that the node is full, and then the error", found)
	}
}

func TestDriverWithAFullNodeNeedsAttention(t *testing.T) {
	now := time.Now()
	const want = "4 volumes wait for a place on node worker-1"
	h := HealthOfDriver(*fullWorker(25, now).Driver, nil, now)
	if h.State != Attention || len(h.Reasons) != 1 || h.Reasons[0].Verdict != diagnosis.NodeFull || h.Reasons[0].Fact != want {
		t.Errorf("%+v, want attention because %q, and no other reason", h, want)
	}
	stuck := *fullWorker(25, now).Driver
	stuck.Lanes[0].Stuck, stuck.Lanes[0].StuckSince = 1, now.Add(-time.Hour)
	if h := HealthOfDriver(stuck, nil, now); h.State != Attention || h.Reasons[0].Verdict != diagnosis.NodeFull {
		t.Errorf("%+v, want the full node before what is stuck", h)
	}
}
