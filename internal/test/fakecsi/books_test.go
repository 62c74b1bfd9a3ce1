package fakecsi

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/safety"
)

func TestBooksTellEachCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend(t, Options{})
		turn(t, b, Knobs{Latency: map[Method]Latency{ControllerPublishVolume: {Base: time.Second}}})
		start := time.Now()
		req := publishRequest("v", "n1", rwo)
		req.Readonly = true
		req.Secrets = map[string]string{"user": "u", "password": "hidden"}
		if _, err := b.ControllerPublishVolume(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		publish(t.Context(), b, "v", "n1", rwx)
		unpublish(t.Context(), b, "v", "n1")
		want := []Call{
			{
				ID: 1, Method: ControllerPublishVolume, Volume: "v", Node: "n1", Readonly: true, AccessMode: "SINGLE_NODE_WRITER",
				Start: start, End: start.Add(time.Second), Changed: true,
			},
			{
				ID: 2, Method: ControllerPublishVolume, Volume: "v", Node: "n1", AccessMode: "MULTI_NODE_MULTI_WRITER",
				Start: start.Add(time.Second), End: start.Add(2 * time.Second), Code: codes.AlreadyExists,
			},
			{
				ID: 3, Method: ControllerUnpublishVolume, Volume: "v", Node: "n1",
				Start: start.Add(2 * time.Second), End: start.Add(2 * time.Second), Changed: true,
			},
		}
		ignoreText := cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "Error" }, cmp.Ignore())
		if diff := cmp.Diff(want, b.Books().Calls, ignoreText); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		if got := b.LastPublish("v").GetVolumeCapability().GetAccessMode().GetMode(); got != rwx {
			t.Errorf("the last publish has access mode %s", got)
		}
		if got := b.LastUnpublish("v").GetNodeId(); got != "n1" {
			t.Errorf("the last unpublish is for node %q", got)
		}
		if b.LastPublish("w") != nil {
			t.Error("there is a publish of a volume that was not published")
		}
		data, err := json.Marshal(b.Books())
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(data), "hidden") {
			t.Error("a secret is in the books")
		}
	})
}

func TestBooksCountCallsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend(t, Options{})
		turn(t, b, Knobs{Hang: []Hang{{}}})
		for _, v := range []string{"a", "b", "c"} {
			go publish(t.Context(), b, v, "n1", rwo)
		}
		go unpublish(t.Context(), b, "d", "n1")
		synctest.Wait()
		bk := b.Books()
		if len(bk.Running) != 4 || bk.InFlight != (Flight{Now: 4, Max: 4}) || bk.Methods[ControllerPublishVolume].InFlight != (Flight{Now: 3, Max: 3}) {
			t.Errorf("while they hang: running %d, in flight %+v, of publish %+v", len(bk.Running), bk.InFlight, bk.Methods[ControllerPublishVolume].InFlight)
		}
		if bk.VolumesInFlight["a"] != (Flight{Now: 1, Max: 1}) {
			t.Errorf("of volume a in flight: %+v", bk.VolumesInFlight["a"])
		}
		turn(t, b, Knobs{ReleaseAll: true})
		synctest.Wait()
		bk = b.Books()
		if len(bk.Running) != 0 || bk.AttachInFlight != (Flight{Max: 4}) || len(bk.VolumesInFlight) != 0 {
			t.Errorf("afterwards: running %d, in flight %+v, %v", len(bk.Running), bk.AttachInFlight, bk.VolumesInFlight)
		}
		if bk.ViolationCount != 0 {
			t.Errorf("violations: %v", bk.Violations)
		}
	})
}

func TestTwoCallsForOneVolumeAtOnceAreAViolation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend(t, Options{})
		turn(t, b, Knobs{Latency: map[Method]Latency{"": {Base: time.Second}}})
		go publish(t.Context(), b, "v", "n1", rwo)
		go unpublish(t.Context(), b, "v", "n2")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		bk := b.Books()
		if bk.VolumesInFlight["v"] != (Flight{Max: 2}) {
			t.Errorf("of v %+v", bk.VolumesInFlight["v"])
		}
		if bk.ViolationCount != 1 || bk.Violations[0].Rule != safety.OneCall || bk.Violations[0].Volume != "v" {
			t.Errorf("violations: %v", bk.Violations)
		}
	})
}

// The CSI specification leaves it to the caller, and csi-attacher does it.
func TestCallsForOneMultiNodeVolumeAtOnceAreAViolationOnOneNodeOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend(t, Options{})
		publish(t.Context(), b, "v", "n1", rwx)
		publish(t.Context(), b, "v", "n2", rwx)
		turn(t, b, Knobs{Hang: []Hang{{}}})
		go publish(t.Context(), b, "v", "n3", rwx)
		go publish(t.Context(), b, "v", "n4", rwx)
		go unpublish(t.Context(), b, "v", "n1")
		go unpublish(t.Context(), b, "v", "n5") // where it never was
		synctest.Wait()
		bk := b.Books()
		if bk.ViolationCount != 0 || bk.VolumesInFlight["v"] != (Flight{Now: 4, Max: 4}) {
			t.Errorf("different nodes: of v %+v, violations %v", bk.VolumesInFlight["v"], bk.Violations)
		}
		go unpublish(t.Context(), b, "v", "n3")
		synctest.Wait()
		bk = b.Books()
		if bk.ViolationCount != 1 || bk.Violations[0].Rule != safety.OneCall {
			t.Errorf("one node: violations %v", bk.Violations)
		}
		turn(t, b, Knobs{ReleaseAll: true})
		synctest.Wait()
	})
}

// It says nothing of the mode of a volume that was never published.
func TestFirstCallsForAMultiNodeVolumeMayBeUnpublishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for node, violations := range map[string]int{"n2": 0, "n1": 1} {
			b := newBackend(t, Options{})
			turn(t, b, Knobs{Hang: []Hang{{}}})
			go unpublish(t.Context(), b, "v", "n1")
			synctest.Wait()
			go publish(t.Context(), b, "v", node, rwx)
			synctest.Wait()
			if bk := b.Books(); bk.ViolationCount != violations {
				t.Errorf("unpublish from n1, publish on %s: %v, want %d violations", node, bk.Violations, violations)
			}
			turn(t, b, Knobs{ReleaseAll: true})
			synctest.Wait()
		}
		b := newBackend(t, Options{})
		turn(t, b, Knobs{Hang: []Hang{{}}})
		for _, node := range []string{"n1", "n2"} { // neither is published, and nobody has said how
			go unpublish(t.Context(), b, "v", node)
			synctest.Wait()
		}
		if bk := b.Books(); bk.ViolationCount != 0 {
			t.Errorf("two unpublishes: %v", bk.Violations)
		}
		turn(t, b, Knobs{ReleaseAll: true})
		synctest.Wait()
	})
}

func TestACallThatWasAbandonedIsNotInFlightForItsVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend(t, Options{})
		turn(t, b, Knobs{FinishAbandoned: new(true), Latency: map[Method]Latency{"": {Base: time.Minute}}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go publish(ctx, b, "v", "n1", rwo)
		time.Sleep(2 * time.Second)
		publish(t.Context(), b, "v", "n1", rwo)
		bk := b.Books()
		if bk.VolumesInFlight["v"].Max > 1 || bk.ViolationCount != 0 {
			t.Errorf("of v %+v, violations %v", bk.VolumesInFlight["v"], bk.Violations)
		}
		if bk.Methods[ControllerPublishVolume].InFlight.Max != 2 {
			t.Errorf("of publish in flight: %+v", bk.Methods[ControllerPublishVolume].InFlight)
		}
	})
}

func TestASecondNodeForASingleNodeVolumeIsAViolation(t *testing.T) {
	b := newBackend(t, Options{})
	publish(t.Context(), b, "v", "n1", rwo)
	if got := publish(t.Context(), b, "v", "n2", rwo); got != codes.FailedPrecondition {
		t.Errorf("got %s", got)
	}
	vs := b.Books().Violations
	if len(vs) != 1 || vs[0].Rule != safety.OneNode || cmp.Diff([]string{"n2", "n1"}, vs[0].Nodes) != "" || vs[0].Call != 2 {
		t.Errorf("violations %+v", vs)
	}
	if b.Books().IsAttached("v", "n2") {
		t.Error("it is attached to the second node")
	}
}

// No caller can know of it. The storage refuses all the same.
func TestASecondNodeBesideOneGainedBehindTheBackIsNoViolationOfTheCaller(t *testing.T) {
	b := newBackend(t, Options{})
	turn(t, b, Knobs{GainAttachments: []VolumeNode{{Volume: "v", Node: "n1"}}})
	if got := publish(t.Context(), b, "v", "n2", rwo); got != codes.FailedPrecondition {
		t.Errorf("got %s", got)
	}
	if vs := b.Books().Violations; len(vs) != 0 {
		t.Errorf("violations %+v", vs)
	}
	publish(t.Context(), b, "v", "n1", rwo) // from here on it is the caller's own
	publish(t.Context(), b, "v", "n2", rwo)
	if vs := b.Books().Violations; len(vs) != 1 || vs[0].Rule != safety.OneNode {
		t.Errorf("violations %+v", vs)
	}
}

// The driver decides then. A call whose caller has left is an answer too: that it took too long.
func TestASecondNodeForWhatTheDriverRefusesToDetachIsNoViolation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend(t, Options{})
		publish(t.Context(), b, "v", "n1", rwo)
		turn(t, b, Knobs{Fail: []Fault{{Method: ControllerUnpublishVolume, Code: codes.Internal, Count: 1}}})
		unpublish(t.Context(), b, "v", "n1")
		publish(t.Context(), b, "v", "n2", rwo)
		if vs := b.Books().Violations; len(vs) > 0 {
			t.Errorf("refused: %+v", vs)
		}
		turn(t, b, Knobs{FinishAbandoned: new(true), Hang: []Hang{{Method: ControllerUnpublishVolume}}})
		publish(t.Context(), b, "v", "n1", rwo) // from here on it is not refused
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go unpublish(ctx, b, "v", "n1")
		time.Sleep(2 * time.Second)
		publish(t.Context(), b, "v", "n2", rwo)
		if vs := b.Books().Violations; len(vs) > 0 {
			t.Errorf("timed out: %+v", vs)
		}
		publish(t.Context(), b, "v", "n3", rwo)
		turn(t, b, Knobs{ReleaseAll: true})
		synctest.Wait()
	})
}

func TestUseOfWhatIsNotAnnouncedIsAViolation(t *testing.T) {
	b := newBackend(t, Options{Capabilities: []Capability{ControllerService}})
	unpublish(t.Context(), b, "v", "n1")
	if vs := b.Books().Violations; len(vs) != 1 || vs[0].Rule != safety.Announced {
		t.Errorf("violations: %v", vs)
	}
}

func TestCountersOnlyKeepsNoCalls(t *testing.T) {
	b := newBackend(t, Options{CountersOnly: true})
	for range 3 {
		publish(t.Context(), b, "v", "n1", rwo)
		unpublish(t.Context(), b, "v", "n1")
	}
	unpublish(t.Context(), b, "v", "n1")
	bk := b.Books()
	if len(bk.Calls) != 0 || b.LastPublish("v") != nil {
		t.Errorf("calls kept: %v, %v", bk.Calls, b.LastPublish("v"))
	}
	want := MethodBook{Begun: 4, Ended: 4, InFlight: Flight{Max: 1}, Changed: 3, Unchanged: 1, Codes: map[string]int{"OK": 4}}
	if diff := cmp.Diff(want, bk.Methods[ControllerUnpublishVolume]); diff != "" {
		t.Errorf("unpublish (-want +got):\n%s", diff)
	}
}

func TestASnapshotDoesNotChange(t *testing.T) {
	b := newBackend(t, Options{})
	publish(t.Context(), b, "v", "n1", rwx)
	before := b.Books()
	frozen, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	publish(t.Context(), b, "v", "n2", rwx)
	publish(t.Context(), b, "w", "n1", rwo)
	unpublish(t.Context(), b, "v", "n1")
	after, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(frozen), string(after)); diff != "" {
		t.Errorf("the snapshot (-before +after):\n%s", diff)
	}
}

func TestWaitWakesOnEachChangeAndEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend(t, Options{})
		go func() {
			time.Sleep(time.Minute)
			publish(t.Context(), b, "v", "n1", rwo)
			time.Sleep(time.Minute)
			if err := b.Set(Knobs{LoseVolumes: []string{"v"}}); err != nil {
				t.Error(err)
			}
		}()
		begin := time.Now()
		if err := b.Wait(t.Context(), func(bk Books) bool { return bk.IsAttached("v", "n1") }); err != nil {
			t.Error(err)
		}
		if err := b.Wait(t.Context(), func(bk Books) bool { return !bk.IsAttached("v", "n1") }); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took != 2*time.Minute {
			t.Errorf("it took %s", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.Wait(ctx, func(Books) bool { return false }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}
