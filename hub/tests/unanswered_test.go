package tests

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hubdriver "github.com/csi-attach-hub/csi-attach-hub/hub/driver"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

var hangPublish = fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume}}}

// status returns what the hub shows of the driver.
func (v *virtual) status() status.Driver {
	v.t.Helper()
	all := v.hub.Drivers()
	if len(all) != 1 {
		v.t.Fatalf("the hub shows %d drivers", len(all))
	}
	return all[0]
}

// withNode makes a node with the driver, and volumes.
func (v *virtual) withNode(volumes ...string) {
	v.t.Helper()
	v.register("n", "id-n")
	for _, name := range volumes {
		v.volume(name)
	}
}

func TestCallInFlightIsShownWithItsBegin(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.driver.Timeout = time.Hour
		v.withNode("a", "b")
		v.turn(hangPublish)
		v.start()
		v.pass(time.Second)
		began := time.Now()
		v.create(v.attachment("a", "n"))
		v.pass(time.Minute)
		v.create(v.attachment("b", "n"))
		v.pass(7 * time.Minute)
		d := v.status()
		want := status.Call{Method: "ControllerPublishVolume", Since: began, VolumeAttachment: "a-n"}
		if got := d.Lane(status.Attach).OldestCall; got.Method != want.Method || got.VolumeAttachment != "a-n" || got.Since.Sub(began) > time.Second {
			t.Errorf("the oldest call is %+v, want %+v", got, want)
		}
		if !d.Lane(status.Detach).OldestCall.Since.IsZero() {
			t.Errorf("a detach is in flight: %+v", d.Lanes)
		}
		if since := d.UnansweredSince; since.Sub(began) > time.Second || since.IsZero() {
			t.Errorf("unanswered since %s, want %s", since, began)
		}
		if a := v.seen("b-n"); a.State != status.Attaching || a.Call.Method != want.Method || a.Call.VolumeAttachment != "b-n" || a.Call.Since.Sub(began) < time.Minute {
			t.Errorf("%+v, want its own call", a)
		}
		v.turn(fakecsi.Knobs{ReleaseAll: true, ClearFaults: true})
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
		v.turn(hangPublish)
		v.start()
		v.pass(time.Second)
		began := time.Now()
		v.create(v.attachment("a", "n"))
		v.pass(10 * time.Minute)
		if since := v.status().UnansweredSince; since.IsZero() || since.Sub(began) > time.Second {
			t.Errorf("unanswered since %s, want %s", since, began)
		}
		// An error is an answer.
		v.turn(fakecsi.Knobs{ReleaseAll: true, ClearFaults: true, Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Code: codes.Internal}}})
		v.pass(10 * time.Minute)
		if since := v.status().UnansweredSince; !since.IsZero() {
			t.Errorf("unanswered since %s, and it answers errors", since)
		}
	})
}

// stuckMessage returns the error in the status of a VolumeAttachment.
func (v *virtual) stuckMessage(name string) string {
	v.t.Helper()
	e := v.get(name).Status.AttachError
	if e == nil {
		v.t.Fatal("the status has no error")
	}
	return e.Message
}

func TestStatusOfAStuckVolumeSaysThatItsCallIsUnanswered(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.driver.Timeout, v.driver.Workers = 24*time.Hour, 20
		v.withNode("a")
		fail := fakecsi.Fault{Method: fakecsi.ControllerPublishVolume, Code: codes.Canceled, Message: "context canceled", Count: 1}
		v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{fail}})
		v.start()
		v.pass(time.Second)
		va := v.attachment("a", "n")
		v.create(va)
		for !strings.Contains(v.message(va), "context canceled") {
			v.pass(time.Millisecond)
		}
		v.turn(hangPublish)
		v.pass(16 * time.Minute)
		got := v.stuckMessage(va.Name)
		since := v.seen(va.Name).Call.Since.UTC().Format(time.RFC3339)
		if !strings.HasPrefix(got, "stuck: attach requested at ") || !strings.HasSuffix(got, ", 1 failed try, ControllerPublishVolume unanswered since "+since) {
			t.Errorf("the status says %q, want that the call is unanswered since %s", got, since)
		}
		if a := v.seen(va.Name); a.State != status.Stuck || strings.Contains(a.LastError, "unanswered") || a.Call.Since.IsZero() || a.Waiting.Kind != "" {
			t.Errorf("%+v: want it stuck with its call", a)
		}
		writes := v.api.Count("patch", "volumeattachments/status")
		v.pass(time.Hour)
		if n := v.api.Count("patch", "volumeattachments/status") - writes; n > 0 {
			t.Errorf("%d writes in an hour in which nothing has changed", n)
		}
		v.turn(fakecsi.Knobs{ReleaseAll: true, ClearFaults: true})
		v.pass(time.Second)
		if got := v.get(va.Name).Status; !got.Attached || got.AttachError != nil {
			t.Errorf("%+v, want it attached", got)
		}
	})
}

// message returns the error in the status of a VolumeAttachment, "" for none.
func (v *virtual) message(va testbed.VolumeAttachment) string {
	v.t.Helper()
	if e := v.get(va.Name).Status.AttachError; e != nil {
		return e.Message
	}
	return ""
}

func TestStatusOfAStuckVolumeSaysWhatItWaitsFor(t *testing.T) {
	for name, tt := range map[string]struct {
		workers int
		first   string // that has a call in flight
		want    string
	}{
		"all workers are busy":   {1, "other", "waiting for a worker of the driver: all that it may have are busy"},
		"other work on a volume": {20, "a", "waiting for other work on the same volume"},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) {
				v.driver.Timeout, v.driver.Workers = 24*time.Hour, tt.workers
				v.withNode("a", "other")
				v.register("n2", "id-n2")
				v.turn(hangPublish)
				v.start()
				v.create(v.attachment(tt.first, "n2"))
				v.pass(time.Second)
				v.create(v.attachment("a", "n"))
				v.pass(20 * time.Minute)
				if got := v.stuckMessage("a-n"); !strings.HasSuffix(got, "Z, "+tt.want) {
					t.Errorf("the status says %q, want %q", got, tt.want)
				}
				if a := v.seen("a-n"); a.State != status.Stuck || a.LastError != "" || a.Waiting.Kind == "" {
					t.Errorf("%+v, want it to wait without an error", a)
				}
				v.turn(fakecsi.Knobs{ReleaseAll: true, ClearFaults: true})
			})
		})
	}
}

func TestVolumesThatWaitForADriverAreCountedThoughNobodyWorksForIt(t *testing.T) {
	away := func(context.Context, registry.Driver) (hubdriver.Session, error) { return nil, errors.New("refused") }
	for name, tt := range map[string]struct {
		make   func(*virtual)
		state  string
		reason string
		want   int // VolumeAttachments that wait
		stuck  int // of them: what a user has paused is not stuck
		shown  status.AttachmentState
	}{
		"paused":                       {func(v *virtual) { v.driver.Mode = registry.ModePaused }, "Paused", "mode", 2, 0, status.Waiting},
		"observed":                     {func(v *virtual) { v.driver.Mode = registry.ModeObserve }, "Ready", "another attacher", 2, 2, status.Stuck},
		"away":                         {func(v *virtual) { v.options.Connect = away }, "Connecting", "refused", 2, 2, status.Stuck},
		"lease held by a csi-attacher": {func(v *virtual) { v.leased(); v.holdLease("sidecar") }, "WaitingForLease", "sidecar", 2, 2, status.Stuck},
		"another replica works for it": {func(v *virtual) {
			v.leased()
			v.options.Leases = withMember{v.options.Leases, "hub-1"}
			v.holdLease("hub-1")
		}, "WaitingForLease", "served by hub-1", 0, 0, status.Stuck},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) {
				v.withNode("a", "b")
				tt.make(v)
				v.start()
				v.pass(time.Second)
				asked := time.Now()
				v.create(v.attachment("a", "n"))
				v.pass(time.Minute)
				v.create(v.attachment("b", "n"))
				v.pass(18 * time.Minute) // longer than stuckAfter
				d := v.status()
				lane := d.Lane(status.Attach)
				if d.State != tt.state || lane.Queued != tt.want || lane.Stuck != tt.stuck || lane.Running > 0 || d.Lane(status.Detach).Queued > 0 {
					t.Errorf("state %s, lane %+v, want %d that wait, of which %d are stuck", d.State, lane, tt.want, tt.stuck)
				}
				if tt.want > 0 && lane.OldestSince.Unix() != asked.Unix() || tt.stuck > 0 && lane.StuckSince.Unix() != asked.Unix() {
					t.Errorf("lane %+v, want it to wait since %s", lane, asked)
				}
				a := v.seen("a-n")
				if a.State != tt.shown || a.Waiting.Kind != status.WaitForDriver || !strings.Contains(a.Waiting.Reason, tt.reason) {
					t.Errorf("%+v, want that it is %s and waits for the driver (%s)", a, tt.shown, tt.reason)
				}
			})
		})
	}
}

// withMember are leases with another live replica.
type withMember struct {
	hubdriver.Leases
	identity string
}

func (w withMember) Members() []lease.Member {
	return append(w.Leases.Members(), lease.Member{Identity: w.identity})
}

func TestVolumesThatWaitForALostDriverAreCounted(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		var session *backendSession
		v.options.Connect = func(context.Context, registry.Driver) (hubdriver.Session, error) {
			if session != nil {
				return nil, errors.New("refused")
			}
			session = newBackendSession(v.backend)
			return session, nil
		}
		v.withNode("a", "b")
		v.create(v.attachment("b", "n"))
		v.start()
		v.pass(time.Minute)
		session.Close()
		v.pass(time.Second)
		v.create(v.attachment("a", "n"))
		v.delete(v.attachment("b", "n"))
		v.pass(time.Minute)
		d := v.status()
		if d.Lane(status.Attach).Queued != 1 || d.Lane(status.Detach).Queued != 1 || d.Work().Stuck > 0 {
			t.Errorf("lanes %+v, want one attach and one detach that wait", d.Lanes)
		}
		if a := v.seen("a-n"); a.State != status.Waiting || a.Waiting.Kind != status.WaitForDriver || !strings.Contains(a.Waiting.Reason, "refused") {
			t.Errorf("%+v, want that it waits for the driver", a)
		}
	})
}

func TestDriverIsDownSinceItCouldLastBeCalledWhoeverHoldsTheLease(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		var away atomic.Bool
		var session *backendSession
		v.options.Connect = func(context.Context, registry.Driver) (hubdriver.Session, error) {
			if away.Load() {
				return nil, errors.New("refused")
			}
			session = newBackendSession(v.backend)
			return session, nil
		}
		v.leased()
		v.withNode("a")
		v.start()
		v.pass(time.Minute)
		if d := v.status(); !d.Lease.Mine || !d.DownSince.IsZero() {
			t.Fatalf("%+v, want it served and up", d)
		}
		away.Store(true)
		lost := time.Now()
		session.Close()
		check := func() {
			t.Helper()
			d := v.status()
			if !d.DownSince.Equal(lost) {
				t.Errorf("state %s, down since %s, want %s", d.State, d.DownSince, lost)
			}
		}
		for range 60 { // the lease is released once, and taken again
			v.pass(time.Second)
			check()
		}
		v.driver.Mode = registry.ModePaused
		v.updates <- registry.Snapshot{v.driver.Name: v.driver}
		v.pass(time.Minute)
		check()
		away.Store(false)
		v.pass(time.Minute)
		if d := v.status(); !d.Up || !d.DownSince.IsZero() {
			t.Errorf("up %v, down since %s after it came back", d.Up, d.DownSince)
		}
	})
}

func TestDriverThatWasNeverReachedIsDownSinceTheHubServesIt(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.options.Connect = func(context.Context, registry.Driver) (hubdriver.Session, error) { return nil, errors.New("refused") }
		began := time.Now()
		v.start()
		v.pass(time.Hour)
		if d := v.status(); d.DownSince.Sub(began) > time.Second || d.DownSince.Before(began) {
			t.Errorf("down since %s, want %s", d.DownSince, began)
		}
	})
}

func TestHealthOfAnObservedDriverSaysThatNobodyHoldsItsLease(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.leased()
		v.driver.Mode = registry.ModeObserve
		v.withNode("a")
		v.start()
		v.create(v.attachment("a", "n"))
		v.pass(2 * time.Minute)
		d := v.status()
		h := status.HealthOfDriver(d, nil, time.Now())
		if h.State != status.Attention || !strings.Contains(h.Reasons[0].Text(time.Now()), "its lease has no holder") {
			t.Errorf("%+v of %+v", h, d.Lease)
		}
	})
}

// The first view of a driver in another namespace found no holder, as nobody had watched that namespace.
func TestHolderOfTheLeaseOfAnObservedDriverIsKnownAtTheFirstView(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.leased()
		v.driver.Mode = registry.ModeObserve
		v.driver.Lease = registry.Lease{Namespace: "elsewhere"}
		holder := "sidecar"
		_, err := v.kube.CoordinationV1().Leases("elsewhere").Create(v.t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: registry.LeaseName(virtualDriver), Namespace: "elsewhere"},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		v.start()
		v.pass(10 * time.Second)
		if n := v.api.Count("watch", "leases"); n < 2 { // the watches of the API in memory know no namespaces
			t.Errorf("the leases of %d namespaces were watched before the first view, want 2", n)
		}
		if got := v.status().Lease; got.Holder != holder || got.Namespace != "elsewhere" {
			t.Errorf("%+v, want the holder %s", got, holder)
		}
		if c := leaseCheck(v.status()); c.OK || !strings.HasPrefix(c.Text, "not known yet: ") {
			t.Errorf("before the holder could renew its lease: %+v", c)
		}
		v.pass(time.Minute)
		d := v.status()
		if d.Lease.Holder != "" || d.Lease.LastHolder != holder {
			t.Errorf("%+v, want one that %s let expire", d.Lease, holder)
		}
		if c := leaseCheck(d); c.OK || !strings.Contains(c.Text, "nobody holds it; made active, the hub takes it at once") {
			t.Errorf("the lease of a dead holder: %+v", c)
		}
	})
}

func leaseCheck(d status.Driver) status.Check {
	return d.Checklist[slices.IndexFunc(d.Checklist, func(c status.Check) bool { return c.Name == "lease" })]
}
