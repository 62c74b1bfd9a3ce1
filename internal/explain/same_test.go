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
		"draining":           func(s *situation) { s.state("Draining", "2 calls in flight") },
		"waits for a detach": func(s *situation) { s.seen.SetWaiting(status.Wait{Kind: status.WaitForDetach, Node: "node-3"}) },
		"waits for a worker": func(s *situation) { s.seen.SetWaiting(status.Wait{Kind: status.WaitForWorker}) },
		"call in flight":     func(s *situation) { s.seen.State = status.Attaching },
		"a call that hangs": func(s *situation) {
			s.seen.State, s.seen.LastError = status.Attaching, "context canceled"
			s.seen.Call = status.Call{Method: "ControllerPublishVolume", Since: now.Add(-8 * time.Minute)}
		},
		"the driver's error": func(s *situation) { s.seen.LastError = "rpc error: code = Internal desc = broken" },
		"a webhook that does not answer": func(s *situation) {
			s.seen.LastError = `add finalizer to persistentvolume: Internal error occurred: failed calling webhook "guard.example.com": no endpoints`
		},
		"a policy that refuses": func(s *situation) {
			s.seen.LastError = `admission webhook "guard.example.com" denied the request: not on Fridays`
		},
		"too many requests": func(s *situation) {
			s.seen.LastError = "the server has received too many requests and has asked us to try again later"
		},
		"an error without one": func(s *situation) { s.seen.LastError = "odd" },
		"published elsewhere": func(s *situation) {
			s.seen.PersistentVolume, s.seen.LastError, s.seen.Elsewhere = s.v.VolumeName, "rpc error: code = FailedPrecondition desc = in use", []status.Elsewhere{{NodeID: "id-3", Node: "node-3"}}
		},
		"not configured": (*situation).notConfigured,
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

// status, page and metrics show a driver's health. explain driver/NAME says the same, in the same order.
func TestExplainGivesTheReasonsOfADriversHealth(t *testing.T) {
	for name, change := range map[string]func(*situation){
		"ready": func(*situation) {},
		"lost": func(s *situation) {
			s.state("Lost", "refused")
			s.served.DownSince, s.served.Waiters, s.served.Lanes = now.Add(-8*time.Minute), []string{"db/db-0"}, []status.Lane{{Operation: status.Attach, Queued: 3, OldestSince: now.Add(-5 * time.Minute)}}
		},
		"hangs": func(s *situation) {
			s.served.UnansweredSince, s.served.Lanes = now.Add(-9*time.Minute), []status.Lane{{Operation: status.Attach, Running: 3, OldestCall: status.Call{Method: "ControllerPublishVolume", Since: now.Add(-8 * time.Minute)}}}
		},
		"stuck and failing": func(s *situation) {
			s.served.Lanes = []status.Lane{{Operation: status.Attach, Stuck: 1, StuckSince: now.Add(-time.Hour), Delayed: 2, Failing: 2, FailingSince: now.Add(-time.Hour), OldestSince: now.Add(-time.Hour)}}
			s.served.Failures = []status.Failure{{Text: "array busy"}}
		},
		"paused": func(s *situation) { s.served.Mode = "paused"; s.state("Paused", "its mode is paused") },
		"observed, and nobody holds the lease": func(s *situation) {
			s.served.Mode, s.served.Lease.Mine, s.served.Lease.Holder, s.v.Leases = "observe", false, "", leases()
		},
		"another attacher": func(s *situation) {
			s.served.ForeignWriter = status.ForeignWriter{Manager: "csi-attacher", Time: now.Add(-time.Minute), VolumeAttachment: "x"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := waiting()
			change(s)
			want := status.HealthOfDriver(s.served.Driver, s.Hub.View.Members(), now)
			s.served.Health = want
			s.Question, s.Subject, s.Volumes = Question{Kind: Driver, Name: driver}, &Volume{Driver: driver, Served: s.served, Leases: s.v.Leases}, nil
			r := Explain(s.Facts)
			if string(r.Result) != string(want.State) || !r.Subject.Since.Equal(want.Since) || len(r.Subject.Reasons) != len(want.Reasons) || (r.Result.ExitCode() == 1) != want.Needs() {
				t.Fatalf("explain says %s, the hub %+v:\n%s", r.Result, want, r.Text())
			}
			for i, reason := range want.Reasons {
				if got := r.Subject.Reasons[i]; got.Health != reason.State || got.Verdict != reason.Verdict || got.Fact != reason.Text(now) || got.Next != strings.Join(reason.Actions, " ") {
					t.Errorf("explain says %+v, the hub %+v", got, reason)
				}
			}
		})
	}
}
