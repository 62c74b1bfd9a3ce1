package main

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/explain"
	"github.com/csi-attach-hub/csi-attach-hub/internal/statustable"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// report asks until the answer is as it should be: the hub needs time to get there.
func (s *scene) report(until func(explain.Report) bool, args ...string) (explain.Report, int) {
	s.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		out, problems, code := s.ask(append([]string{"explain", "-o", "json"}, args...)...)
		var r explain.Report
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			s.t.Fatalf("explain %v: %v, exit code %d, stderr %s", args, err, code, problems)
		}
		if until(r) {
			return r, code
		}
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			s.t.Fatalf("explain %v never came to what is wanted, the last answer:\n%s", args, r.Text(statustable.Style{}, true))
		}
	}
}

func TestDriversAndNodesAreExplained(t *testing.T) {
	s := newScene(t, "subjects")
	full, fullSocket := s.entry("full")
	s.config.WriteString("    stuckAfter: 100ms\n")
	backend := s.startDriver(full, fullSocket).Backend
	away, _ := s.entry("away")
	paused, pausedSocket := s.entry("paused")
	s.config.WriteString("    mode: paused\n")
	s.startDriver(paused, pausedSocket)
	s.create(testbed.Node{Name: "subjects-a"}, testbed.CSINode{Node: "subjects-a", Drivers: map[string]string{full: "id-a", away: "id-a", paused: "id-a"}})
	if err := backend.Set(fakecsi.Knobs{Fail: []fakecsi.Fault{
		{Method: fakecsi.ControllerPublishVolume, Volume: "subjects-full-1", Code: codes.PermissionDenied, Message: "no place for subjects-full-1"},
		{Method: fakecsi.ControllerPublishVolume, Volume: "subjects-full-2", Code: codes.PermissionDenied, Message: "no place for subjects-full-2"},
	}}); err != nil {
		t.Fatal(err)
	}
	server := s.startVisibleHub()
	for _, name := range []string{"subjects-full-1", "subjects-full-2", "subjects-full-3"} {
		s.volume(name, full, nil)
		s.attach(name, full, "subjects-a")
	}

	r, code := s.report(func(r explain.Report) bool {
		return r.Result == "attention" && len(r.VolumeAttachments) == 2 && len(r.Subject.Reasons) == 1 && r.Subject.Reasons[0].Verdict == diagnosis.Stuck &&
			r.Subject.Reasons[0].Detail != "" // a volume is stuck before the driver has answered
	}, "driver/"+full, "--server", server)
	if code != 1 || r.VolumeAttachments[0].State != status.Stuck || !strings.HasPrefix(r.Subject.Reasons[0].Detail, "PermissionDenied: no place for subjects-full-") {
		t.Errorf("exit code %d, want 1, and that two volumes are stuck:\n%s", code, r.Text(statustable.Style{}, true))
	}
	r, code = s.report(func(r explain.Report) bool { return r.Result == "broken" }, "driver/"+away, "--server", server)
	if code != 1 || r.Subject.Reasons[0].Verdict != diagnosis.SocketMissing || r.Subject.Since.IsZero() {
		t.Errorf("exit code %d, want 1, and that the socket is missing:\n%s", code, r.Text(statustable.Style{}, true))
	}
	r, code = s.report(func(r explain.Report) bool { return r.Result == "standby" }, "driver/"+paused, "--server", server)
	checks := map[string]bool{}
	for _, c := range r.Subject.Checks {
		checks[c.Name] = c.OK
	}
	want := map[string]bool{"endpoint": true, "name": true, "capabilities": true, "node IDs": true, "secrets": true, "rights": true, "lease": true}
	if text := r.Text(statustable.Style{}, true); code != 0 || r.Subject.Reasons[0].Verdict != diagnosis.DriverPaused || !maps.Equal(checks, want) || !strings.Contains(text, "\nok       endpoint: ") {
		t.Errorf("exit code %d, want 0, that it is paused, and that no check is open:\n%s", code, text)
	}
	r, code = s.report(func(r explain.Report) bool {
		return len(r.VolumeAttachments) == 3 && r.VolumeAttachments[2].State == status.Attached
	}, "node/subjects-a", "--server", server)
	if text := r.Text(statustable.Style{}, true); code != 1 || r.VolumeAttachments[1].State != status.Stuck || !strings.Contains(text, "driver "+full+": node ID id-a") || !strings.Contains(text, "subjects-full-3") {
		t.Errorf("exit code %d, want 1, two volumes in trouble and one attached:\n%s", code, text)
	}
	s.create(testbed.Pod{Name: "subjects-pod", Node: "subjects-a", Claims: []string{"subjects-none"}})
	if out, problems, _ := s.ask("explain", "pod/subjects-pod", "-n", "default", "--server", server); !strings.HasPrefix(out, "Pod default/subjects-pod, ") {
		t.Errorf("-n is not the namespace of the Pod:\n%s%s", out, problems)
	}
}
