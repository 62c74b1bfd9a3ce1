package tests

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	hubdriver "github.com/csi-attach-hub/csi-attach-hub/hub/driver"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func TestWhatAVolumeAttachmentWaitsForIsShownByKind(t *testing.T) {
	// twice asks for two attaches, of which the second is shown.
	twice := func(first, second testbed.VolumeAttachment) func(*virtual) string {
		return func(v *virtual) string {
			v.setKnobs(hanging(publish))
			v.start()
			v.create(first)
			v.pass(time.Second)
			v.create(second)
			return second.Name
		}
	}
	attachment := (*virtual)(nil).attachment // needs no world
	type row struct {
		make func(*virtual) (asked string)
		want status.Wait
	}
	eachInVirtualTime(t, map[string]row{
		"for a driver that is not configured": {func(v *virtual) string {
			v.start()
			v.create(testbed.VolumeAttachment{Name: "stray", Driver: "stray.example.com", Node: "n", PersistentVolume: "v"})
			return "stray"
		}, status.Wait{Kind: status.WaitForConfiguration}},
		"for a driver that cannot be called": {func(v *virtual) string {
			v.cut()
			v.start()
			v.create(v.attachment("v", "n"))
			return "v-n"
		}, status.Wait{Kind: status.WaitForDriver, DriverState: "Connecting", Reason: "EOF"}},
		"for a detach from another node": {func(v *virtual) string {
			v.start()
			va := v.attach("v")[0]
			v.setKnobs(hanging(unpublish))
			v.delete(va)
			v.create(v.attachment("v", "n2"))
			return "v-n2"
		}, status.Wait{Kind: status.WaitForDetach, Node: "n", VolumeAttachment: "v-n"}},
		"for a detach of what was left attached": {func(v *virtual) string {
			v.driver.Settings.Timeout = time.Hour
			v.start()
			va := v.attach("v")[0]
			v.refuseToDetach("id-n", codes.Internal)
			v.delete(va)
			v.pass(time.Second)
			v.setKnobs(fakecsi.Knobs{ClearFaults: true, Hang: []fakecsi.Hang{{Method: unpublish}}})
			v.stripFinalizers(va.Name)
			v.pass(time.Minute) // the next try
			v.create(v.attachment("v", "n2"))
			return "v-n2"
		}, status.Wait{Kind: status.WaitForDanglingDetach, NodeID: "id-n"}},
		"for other work on the volume": {twice(attachment("v", "n"), attachment("v", "n2")), status.Wait{Kind: status.WaitForVolume}},
		"for other calls for the node": {func(v *virtual) string {
			v.driver.Settings.MaxPerNode = 1
			return twice(attachment("v", "n"), attachment("other", "n"))(v)
		}, status.Wait{Kind: status.WaitForNode}},
		"for a worker": {func(v *virtual) string {
			v.driver.Settings.Workers = 1
			return twice(attachment("v", "n"), attachment("other", "n2"))(v)
		}, status.Wait{Kind: status.WaitForWorker}},
	}, func(v *virtual, c row) {
		v.withNode("v", "other")
		v.register("n2", "id-n2")
		asked := c.make(v)
		v.pass(time.Second)
		if a := v.seen(asked); a.Waiting != c.want {
			v.t.Errorf("%+v, want that it waits for %+v", a, c.want)
		}
		v.delete(testbed.VolumeAttachment{Name: asked})
		v.setKnobs(healed)
	})
}

func TestAVolumeAttachmentThatIsNotServedShowsTheOperationThatIsDueAndSinceWhen(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		add := func(name string, by func(*storagev1.VolumeAttachment)) { // what another attacher has done
			va := testbed.VolumeAttachment{Name: name, Driver: "stray.example.com", Node: "n", PersistentVolume: name}.Build()
			if by != nil {
				va.Finalizers, va.Status.Attached = []string{attach.Finalizer("stray.example.com")}, true
				by(va)
			}
			v.write(va)
		}
		add("new", nil)
		add("done", func(*storagev1.VolumeAttachment) {})
		add("gone", func(va *storagev1.VolumeAttachment) { va.Status.DetachError = &storagev1.VolumeError{Message: "busy"} })
		v.pass(time.Hour)
		v.delete(testbed.VolumeAttachment{Name: "gone"})
		v.pass(time.Second)
		for name, want := range map[string]status.Attachment{
			"new":  {Operation: status.Attach, Since: v.get("new").CreationTimestamp.Time, Waiting: status.Wait{Kind: status.WaitForConfiguration}},
			"gone": {Operation: status.Detach, Since: v.get("gone").DeletionTimestamp.Time, LastError: "busy", Waiting: status.Wait{Kind: status.WaitForConfiguration}},
			"done": {}, // nothing is due
		} {
			if a := v.seen(name); a.State != status.Unserved || a.Waiting.Kind != want.Waiting.Kind || a.Operation != want.Operation || !a.Since.Equal(want.Since) || a.LastError != want.LastError {
				t.Errorf("%s: %+v, want %+v", name, a, want)
			}
		}
	})
}

// Who shows an error has its cause from the hub, and does not look for words in it: those of a
// driver may be any.
func TestTheCauseOfTheLastErrorIsShown(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.withNode("v", "other")
		v.setKnobs(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: publish, Code: codes.Internal, Message: `csinode "n" not found`}}})
		v.start()
		v.create(v.attachment("v", "n"), v.attachment("other", "unknown-node"))
		v.pass(time.Second)
		for name, want := range map[string]diagnosis.Cause{
			"v-n":                {Verdict: diagnosis.BackendError, Code: "Internal"},
			"other-unknown-node": {Verdict: diagnosis.NodeWithoutCSI},
		} {
			if a := v.seen(name); a.LastCause != want || a.LastError == "" {
				t.Errorf("%s: the cause of %q is %+v, want %+v", name, a.LastError, a.LastCause, want)
			}
		}
		if failures := v.status().Failures; len(failures) == 0 || failures[0].Cause.Verdict == "" {
			t.Errorf("failures without a cause: %+v", failures)
		}
	})
}

func TestCallInFlightIsShownWithItsBegin(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.driver.Timeout = time.Hour
		v.withNode("a", "b")
		v.setKnobs(hanging(publish))
		v.start()
		v.pass(time.Second)
		began := time.Now()
		v.attach("a")
		v.pass(time.Minute)
		v.attach("b")
		v.pass(7 * time.Minute)
		const method = "ControllerPublishVolume"
		d := v.status()
		if got := d.Lane(status.Attach).OldestCall; got.Method != method || got.VolumeAttachment != "a-n" || got.Since.Sub(began) > time.Second {
			t.Errorf("the oldest call is %+v, want that of a-n since %s", got, began)
		}
		if since := d.UnansweredSince; since.Sub(began) > time.Second || since.IsZero() || !d.Lane(status.Detach).OldestCall.Since.IsZero() {
			t.Errorf("unanswered since %s, want %s; lanes %+v", since, began, d.Lanes)
		}
		if a := v.seen("b-n"); a.State != status.Attaching || a.Call.Method != method || a.Call.VolumeAttachment != "b-n" || a.Call.Since.Sub(began) < time.Minute {
			t.Errorf("%+v, want its own call", a)
		}
		v.setKnobs(healed)
		v.pass(time.Second)
		if d := v.status(); !d.UnansweredSince.IsZero() || !d.Work().OldestCall.Since.IsZero() {
			t.Errorf("after the answers: unanswered since %s, oldest call %+v", d.UnansweredSince, d.Work().OldestCall)
		}
		if a := v.seen("b-n"); a.State != status.Attached || !a.Call.Since.IsZero() {
			t.Errorf("%+v, want it attached without a call", a)
		}
	})
}

// With a timeout of 15 s no call is ever old.
func TestDriverThatAnswersNothingIsUnansweredSinceItsFirstCall(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.withNode("a")
		v.setKnobs(hanging(publish))
		v.start()
		v.pass(time.Second)
		began := time.Now()
		v.attach("a")
		v.pass(10 * time.Minute)
		if since := v.status().UnansweredSince; since.IsZero() || since.Sub(began) > time.Second {
			t.Errorf("unanswered since %s, want %s", since, began)
		}
		v.setKnobs(healed)
		v.setKnobs(failing(publish, codes.Internal)) // an error is an answer
		v.pass(10 * time.Minute)
		if since := v.status().UnansweredSince; !since.IsZero() {
			t.Errorf("unanswered since %s, and it answers errors", since)
		}
	})
}

func TestStatusOfAStuckVolumeSaysSinceWhenAndWhy(t *testing.T) {
	webhook := func(code int) func(*virtual) {
		return func(v *virtual) { v.reply(code, patches("persistentvolumes")) }
	}
	hang := func(v *virtual) { v.setKnobs(hanging(publish)) }
	type row struct {
		workers int
		first   string // volume that is asked for on another node before
		happen  func(*virtual)
		soon    string // in the status after a minute; "" for no error: that may pass by itself
		want    string
		state   status.AttachmentState
	}
	eachInVirtualTime(t, map[string]row{
		"the driver fails":                  {20, "", func(v *virtual) { v.setKnobs(failing(publish, codes.Internal)) }, "Internal", " failed tries, last error: rpc error: code = Internal", status.Stuck},
		"the driver is away":                {20, "", (*virtual).cut, "", "not connected", status.Stuck},
		"a call hangs after a try":          {20, "", func(v *virtual) { v.setKnobs(failingOnce(publish, codes.Canceled)) }, "Canceled", ", 1 failed try, ControllerPublishVolume unanswered since ", status.Stuck},
		"all workers are busy":              {1, "other", hang, "", "Z, waiting for a worker of the driver: all that it may have are busy", status.Stuck},
		"other work on a volume":            {20, "a", hang, "", "Z, waiting for other work on the same volume", status.Stuck},
		"an admission webhook is down":      {20, "", webhook(http.StatusInternalServerError), "add finalizer to persistentvolume", "add finalizer to persistentvolume", status.Stuck},
		"somebody else writes all the time": {20, "", webhook(http.StatusConflict), "", "add finalizer to persistentvolume", status.Stuck},
	}, func(v *virtual, c row) {
		v.driver.Timeout, v.driver.Workers, v.driver.Retry.Initial = 24*time.Hour, c.workers, 10*time.Second
		v.withNode("a", "other")
		v.register("n2", "id-n2")
		c.happen(v)
		v.start()
		if c.first != "" {
			v.create(v.attachment(c.first, "n2"))
			v.pass(time.Second)
		}
		v.attach("a")
		if c.soon == "Canceled" {
			hang(v)
		}
		v.pass(time.Minute)
		if c.soon != "" {
			v.wantAttachError("a-n", c.soon)
			if events := v.eventsWith("AttachFailed"); len(events) == 0 {
				v.t.Error("no Event says so")
			}
		} else if e := v.get("a-n").Status.AttachError; e != nil {
			v.t.Errorf("after a minute the status says %q", e.Message)
		}
		v.pass(16 * time.Minute)
		v.wantAttachError("a-n", c.want)
		if got := v.get("a-n"); !strings.HasPrefix(got.Status.AttachError.Message, "stuck: attach requested at "+got.CreationTimestamp.UTC().Format(time.RFC3339)) {
			v.t.Errorf("the status says %q, want since when", got.Status.AttachError.Message)
		}
		if a := v.seen("a-n"); a.State != c.state || strings.Contains(a.LastError, "unanswered") {
			v.t.Errorf("%+v, want it %s", a, c.state)
		}
		if v.backend.Books().AttachInFlight.Now > 0 {
			writes := v.api.Count("patch", "volumeattachments/status")
			v.pass(time.Hour)
			if n := v.api.Count("patch", "volumeattachments/status") - writes; n > 0 {
				v.t.Errorf("%d writes in an hour in which nothing has changed", n)
			}
		}
		if c.first == "a" {
			v.delete(v.attachment("a", "n2"))
		}
		v.api.Intercept(nil)
		v.mend()
		v.setKnobs(healed)
		v.pass(2 * time.Minute)
		v.wantAttached("a-n")
	})
}

// withMember are leases with another live replica.
type withMember struct {
	hubdriver.Leases
	identity string
}

func (w withMember) Members() []lease.Member {
	return append(w.Leases.Members(), lease.Member{Identity: w.identity})
}

func TestVolumesThatWaitForADriverAreCountedThoughNobodyWorksForIt(t *testing.T) {
	type row struct {
		make   func(*virtual)
		state  string
		reason string
		want   int // VolumeAttachments that wait to be attached
		stuck  int // of them: what a user has paused is not stuck
		detach int // those that wait to be detached; of a driver that another replica serves, what is not stuck is left to it
		shown  status.AttachmentState
	}
	eachInVirtualTime(t, map[string]row{
		"paused":                       {func(v *virtual) { v.mode(registry.ModePaused) }, "Paused", "mode", 2, 0, 1, status.Waiting},
		"observed":                     {func(v *virtual) { v.mode(registry.ModeObserve) }, "Ready", "another attacher", 2, 2, 1, status.Stuck},
		"away":                         {func(v *virtual) { v.cut() }, "Lost", "EOF", 2, 2, 1, status.Stuck},
		"lease held by a csi-attacher": {func(v *virtual) { v.stealLease("sidecar") }, "WaitingForLease", "sidecar", 2, 2, 1, status.Stuck},
		"another replica works for it": {func(v *virtual) { v.stealLease("hub-1") }, "WaitingForLease", "served by hub-1", 2, 2, 0, status.Stuck},
	}, func(v *virtual, c row) {
		v.leased()
		v.options.Leases = withMember{v.options.Leases, "hub-1"}
		v.withNode("a", "b", "leaving")
		v.start()
		v.pass(time.Minute)
		leaving := v.attach("leaving")[0]
		v.wantAttached(leaving.Name)
		c.make(v)
		v.pass(time.Minute)
		asked := time.Now()
		v.attach("a")
		v.pass(time.Minute)
		v.attach("b")
		v.pass(18 * time.Minute) // longer than stuckAfter
		v.delete(leaving)
		v.pass(time.Second)
		d := v.status()
		lane := d.Lane(status.Attach)
		if d.State != c.state && c.state != "Lost" || lane.Queued != c.want || lane.Stuck != c.stuck || lane.Running > 0 || d.Lane(status.Detach).Queued != c.detach {
			v.t.Errorf("state %s, lanes %+v, want %d that wait, of which %d are stuck, and %d detaches", d.State, d.Lanes, c.want, c.stuck, c.detach)
		}
		if c.want > 0 && lane.OldestSince.Unix() != asked.Unix() || c.stuck > 0 && lane.StuckSince.Unix() != asked.Unix() {
			v.t.Errorf("lane %+v, want it to wait since %s", lane, asked)
		}
		a := v.seen("a-n")
		if a.State != c.shown || a.Waiting.Kind != status.WaitForDriver || !strings.Contains(a.Waiting.Reason, c.reason) {
			v.t.Errorf("%+v, want that it is %s and waits for the driver (%s)", a, c.shown, c.reason)
		}
	})
}

func TestDriverIsDownSinceItCouldLastBeCalledWhoeverHoldsTheLease(t *testing.T) {
	eachInVirtualTime(t, map[string]bool{"it was reached": true, "it was never reached": false}, func(v *virtual, reached bool) {
		v.leased()
		v.withNode("a")
		lost := time.Now()
		if !reached {
			v.cut()
		}
		v.start()
		if reached {
			v.pass(time.Minute)
			if d := v.status(); !d.Lease.Mine || !d.DownSince.IsZero() {
				v.t.Fatalf("%+v, want it served and up", d)
			}
			lost = time.Now()
			v.cut()
		}
		check := func() {
			v.t.Helper()
			if d := v.status(); d.DownSince.Before(lost) || d.DownSince.Sub(lost) > time.Second {
				v.t.Errorf("state %s, down since %s, want %s", d.State, d.DownSince, lost)
			}
		}
		for range 60 { // the lease is released once, and taken again
			v.pass(time.Second)
			check()
		}
		v.mode(registry.ModePaused)
		v.pass(time.Hour)
		check()
		v.mend()
		v.pass(time.Minute)
		if d := v.status(); !d.Up || !d.DownSince.IsZero() {
			v.t.Errorf("up %v, down since %s after it came back", d.Up, d.DownSince)
		}
	})
}
