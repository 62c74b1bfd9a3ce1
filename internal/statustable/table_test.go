package statustable

import (
	"errors"
	"strings"
	"testing"
	"unicode"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/hubclient"
)

func TestTableShowsEachDriverAndThenWhatIsWrong(t *testing.T) {
	one := status.Overview{Identity: "hub-0_abc", Unclaimed: map[string]int{"stray.example.com": 3, "b": 1},
		Config: status.Config{Hash: "1", Errors: []string{"drivers.yaml:3: no"}, Warnings: []string{"drivers.yaml:9: hm"},
			Conflicts: []status.Conflict{{Driver: "b", Loser: "/csi/b.sock", Winner: "drivers.yaml:5", Reason: "is there twice"}}}}
	two := one
	two.Identity, two.Config.Hash = "hub-1_def", "2"
	v := hubclient.Merge([]hubclient.Answer{
		{Replica: "Pod h/hub-0", Overview: one, Drivers: []status.Driver{
			{Name: "b", State: "WaitingForLease", Mode: "active", Reason: "held by hub-1_def", Lease: status.Lease{Holder: "hub-1_def"}},
			{Name: "a", State: "Lost", Mode: "active", Reason: "gone\n\x1b[31m" + strings.Repeat("x", 200), Lease: status.Lease{Holder: "sidecar_7"}},
		}},
		{Replica: "Pod h/hub-1", Overview: two, Drivers: []status.Driver{{Name: "b", State: "Ready", Mode: "active", Up: true,
			Lease: status.Lease{Holder: "hub-1_def", Mine: true}, Failures: []status.Failure{{Text: "rpc error: busy"}},
			Lanes: []status.Lane{{Operation: status.Attach, Queued: 4, Delayed: 2, Running: 20, Stuck: 1, OldestSeconds: 372},
				{Operation: status.Detach, Queued: 1, Running: 3, OldestSeconds: 5}},
			Unowned:      []status.UnownedPublication{{VolumeHandle: "vol-1", NodeID: "i-1", Node: "n", Tries: 3, LastError: "no\x00such node"}, {VolumeHandle: "vol-2", NodeID: "i-2"}},
			UnownedCount: 5}}},
		{Replica: "Pod h/hub-2", Err: errors.New("connection refused")},
	})
	want := `DRIVER  STATE  MODE    LEADER     QUEUED  RUNNING  FAILED  STUCK  OLDEST  REASON
a       Lost   active  sidecar_7  0       0        0       0      -       gone \x1b[31m` + strings.Repeat("x", 86) + `…
b       Ready  active  hub-1      5       23       2       1      6m12s   last: rpc error: busy

Problems:
  Pod h/hub-2 does not answer: connection refused
  the replicas have different configurations: Pod h/hub-0 has 1; Pod h/hub-1 has 2

Configuration errors (what was read before holds):
  drivers.yaml:3: no

Configuration warnings:
  drivers.yaml:9: hm

Volumes left attached where no VolumeAttachment asks for them (to be detached):
  b: volume vol-1 at node ID i-1 (node n), tried 3 times: no\x00such node
  b: volume vol-2 at node ID i-2 (node unknown), not tried yet
  b: and 3 more

Conflicts (found and not served):
  b at /csi/b.sock: is there twice (served: drivers.yaml:5)

VolumeAttachments of drivers that are not served:
  stray.example.com: 3
`
	got := Table(v)
	if got != want {
		t.Errorf("the table is\n%s\nwant\n%s", got, want)
	}
	for _, r := range got {
		if r != '\n' && !unicode.IsGraphic(r) {
			t.Errorf("%q is in the table", r)
		}
	}
}

func TestTableOfNothing(t *testing.T) {
	if got, want := Table(hubclient.Merge(nil)), "No driver is served.\n"; got != want {
		t.Errorf("the table is %q, want %q", got, want)
	}
}
