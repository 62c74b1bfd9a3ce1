package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/statustable"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// asked repeats a command until its output has the words, and returns its output and exit code.
func (s *scene) asked(words string, args ...string) (out string, code int) {
	s.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		out, problems, code := s.ask(args...)
		if strings.Contains(out, words) {
			return out, code
		}
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			s.t.Fatalf("%v never printed %q, the last answer:\n%s%s", args, words, out, problems)
		}
	}
}

func TestStatusAndVolumesOfARunningHubNameTheVolumesInTrouble(t *testing.T) {
	s := newScene(t, "trouble")
	good, socket := s.entry("good")
	backend := s.startDriver(good, socket).Backend
	away, _ := s.entry("away")
	if err := backend.Set(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Volume: "trouble-full", Code: codes.PermissionDenied, Message: "\x1b[31mno room"}}}); err != nil {
		t.Fatal(err)
	}
	s.create(testbed.CSINode{Node: "trouble-node", Drivers: map[string]string{good: "id-1", away: "id-2"}})
	server := s.startVisibleHub()
	for name, driver := range map[string]string{"trouble-full": good, "trouble-fine": good, "trouble-away": away} {
		s.volume(name, driver, nil)
		s.attach(name, driver, "trouble-node")
	}
	s.waitFor("the volume that fits is attached", attachedAtLeast(1))

	ask := func(args ...string) []string { return append(args, "--server", server) }
	s.asked("volumeattachment/trouble-full\n", ask("volumes", "--state", "failing,stuck", "-o", "name")...)
	s.asked("volumeattachment/trouble-away\n", ask("volumes", "--driver", away, "-o", "name")...)

	out, code := s.asked("no room", ask("volumes", "--node", "trouble-node")...)
	if code != 0 || strings.Contains(out, "trouble-fine") || !strings.Contains(out, "trouble-away") || strings.Contains(out, "\x1b") {
		t.Errorf("exit code %d, want the two volumes in trouble:\n%s", code, out)
	}
	// The API server has VolumeAttachments of other tests too.
	out, _, code = s.ask(ask("volumes", "--all", "--node", "trouble-node", "-o", "json")...)
	var list struct{ Volumes []status.Attachment }
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != 0 || len(list.Volumes) != 3 || list.Volumes[2].State != status.Attached {
		t.Errorf("%v, exit code %d, want three volumes, the attached one last:\n%s", err, code, out)
	}

	// While a try runs, its volume is not in trouble: each answer is waited for.
	out, code = s.asked("1 driver broken; ", ask("status", "--fail-on=broken")...)
	if code != exitTrouble || !strings.HasPrefix(out, "1 driver broken; ") {
		t.Errorf("exit code %d, want %d for a driver that cannot be called:\n%s", code, exitTrouble, out)
	}
	s.asked("\nVolumes in trouble:\nPOD ", ask("status")...)
	out, _ = s.asked(`"name": "trouble-full"`, ask("status", "-o", "json")...)
	var r statustable.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if d := r.Driver(away); d == nil || d.Health.State != status.Broken || r.Summary.Health != status.Broken {
		t.Errorf("the JSON does not say that driver %s is broken:\n%s", away, out)
	}
}
