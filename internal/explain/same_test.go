package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// Who has read one and looks at the other must not find a second cause.
func TestExplainStopsWithTheWordsOfTheStatusPage(t *testing.T) {
	for name, change := range map[string]func(*situation){
		"cannot be called":   func(s *situation) { s.state("Lost", "dial tcp 10.0.0.1:9443: connect: connection refused") },
		"socket missing":     func(s *situation) { s.state("Connecting", "connect: no such file or directory") },
		"another driver":     func(s *situation) { s.state("NameMismatch", `reports the name "other"`) },
		"paused by its mode": func(s *situation) { s.served.Mode = "paused"; s.state("Paused", "its mode is paused") },
		"paused by the hub":  func(s *situation) { s.state("Paused", "another attacher wrote") },
		"draining":           func(s *situation) { s.state("Draining", "2 calls in flight") },
		"waits for a detach": func(s *situation) { s.seen.SetWaiting(status.Wait{Kind: status.WaitForDetach, Node: "node-3"}) },
		"waits for a worker": func(s *situation) { s.seen.SetWaiting(status.Wait{Kind: status.WaitForWorker}) },
		"call in flight":     func(s *situation) { s.seen.State = status.Attaching },
		"a call that hangs": func(s *situation) {
			s.seen.State, s.seen.LastError = status.Attaching, "context canceled"
			s.seen.Call = status.Call{Method: "ControllerPublishVolume", Since: now.Add(-8 * time.Minute)}
		},
		"the driver's error":   func(s *situation) { s.seen.LastError = "rpc error: code = Internal desc = broken" },
		"an error without one": func(s *situation) { s.seen.LastError = "odd" },
		"not configured":       (*situation).notConfigured,
	} {
		t.Run(name, func(t *testing.T) {
			s := waiting()
			change(s)
			seen := status.Attachment{Name: s.va.Name, Driver: driver, State: status.Unclaimed}
			in := status.DiagnosisInput{Attachment: seen, Replicas: s.Hub.View.Replicas[0].Overview.Replicas, Now: now}
			if s.v.Served != nil {
				s.seen.Node = s.v.NodeName
				in.Attachment, in.Driver = *s.seen, &s.served.Driver
			}
			page := status.Diagnose(in)[0]
			stop := *Explain(s.Facts).Volumes[0].Stop
			if stop.Next == "Wait." && len(page.Actions) == 0 {
				stop.Next = "" // a page that says nothing to do shows nothing
			}
			if stop.Verdict != page.Verdict || stop.Object != page.Object || stop.Fact != page.Text(s.Facts.Now) || stop.Next != strings.Join(page.Actions, " ") {
				t.Errorf("explain says %+v, the page %+v", stop, page)
			}
		})
	}
	if (diagnosis.Diagnosis{}).Summary(time.Now()) != "" {
		t.Error("a driver that is worked for has a summary")
	}
}
