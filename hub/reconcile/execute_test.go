package reconcile

import (
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/fakekube"
)

func TestLimitIsAskedOnceForEachWriteAndARefusalRepeatsNoCall(t *testing.T) {
	t.Run("asked", func(t *testing.T) {
		inExecution(t, nil, func(x *executing) {
			x.budget.SetBurst(100)
			time.Sleep(time.Second) // it fills up
			x.budget.SetLimit(rate.Limit(1e-9))
			must(t, x.look())
			// PersistentVolume, VolumeAttachment, status.
			if asked := 100 - int(x.budget.Tokens()+0.5); asked != 3 {
				t.Errorf("an attach has asked %d times, want 3", asked)
			}
			x.delete()
			must(t, x.look())
			if asked := 100 - int(x.budget.Tokens()+0.5); asked != 4 {
				t.Errorf("attach and detach have asked %d times, want 4", asked)
			}
			if want := []string{"publish id", "unpublish id"}; !slices.Equal(x.recording.calls, want) {
				t.Errorf("calls %v, want %v", x.recording.calls, want)
			}
		})
	})
	t.Run("refused", func(t *testing.T) {
		inExecution(t, nil, func(x *executing) {
			refuse := func(string) error {
				x.budget.SetBurst(0)
				x.budget.SetLimit(1)
				return nil
			}
			x.recording.answer = refuse
			if err := x.look(); !errors.Is(err, attach.ErrRefused) {
				t.Fatalf("attach: %v, want the refusal", err)
			}
			if p := x.Table.Open(x.get()); p.Belief != volume.Published || x.get().Status.Attached {
				t.Errorf("%+v; want the call remembered, and no status", p)
			}
			x.budget.SetLimit(rate.Inf)
			if err := x.look(); err != nil || !x.get().Status.Attached {
				t.Errorf("not attached: %v", err)
			}
			x.delete()
			if err := x.look(); !errors.Is(err, attach.ErrRefused) || len(x.get().Finalizers) == 0 {
				t.Fatalf("detach: %v, want the refusal", err)
			}
			x.budget.SetLimit(rate.Inf)
			if err := x.look(); err != nil {
				t.Error(err)
			}
			if want := []string{"publish id", "unpublish id"}; !slices.Equal(x.recording.calls, want) {
				t.Errorf("calls %v, want %v", x.recording.calls, want)
			}
		})
	})
}

// An API server that ends in the middle of an answer has refused nothing: the driver was
// asked again for a volume that was attached.
func TestAnswerToTheStatusThatIsCutOffLeadsToNoSecondCall(t *testing.T) {
	loses := true
	inExecution(t, func(next http.RoundTripper) http.RoundTripper { return answerless{next, &loses, false} }, func(x *executing) {
		if err := x.look(); err == nil || isOfTheVolume(&queue.Item{}, err) {
			t.Errorf("%v: want an error that is not for the status", err)
		}
		loses = false
		if err := x.look(); err != nil || !x.get().Status.Attached || x.get().Status.AttachmentMetadata["key"] != "value" {
			t.Errorf("not attached: %v, %+v", err, x.get().Status)
		}
		if want := []string{"publish id"}; !slices.Equal(x.recording.calls, want) {
			t.Errorf("calls %v, want %v", x.recording.calls, want)
		}
	})
}

// The driver may give another publish context when it is asked again.
func TestStatusThatTheAPIServerNeverTakesLeadsToAnotherCall(t *testing.T) {
	inExecution(t, nil, func(x *executing) {
		x.api.Intercept(func(r fakekube.Request) int {
			if r.Verb == "patch" && r.Resource == "volumeattachments/status" {
				return http.StatusRequestEntityTooLarge
			}
			return 0
		})
		if err := x.look(); !attach.Rejected(err) {
			t.Errorf("%v: want a rejection", err)
		}
		x.api.Intercept(nil)
		if err := x.look(); err != nil || !x.get().Status.Attached {
			t.Errorf("not attached: %v", err)
		}
		if want := []string{"publish id", "publish id"}; !slices.Equal(x.recording.calls, want) {
			t.Errorf("calls %v, want %v", x.recording.calls, want)
		}
	})
}

// Whatever a step answers, nothing is called or written after it, but for the previous target.
func TestNothingIsDoneAfterAnError(t *testing.T) {
	refuse := func(resource string, after int) func(*executing) {
		return func(x *executing) {
			seen := 0
			x.api.Intercept(func(r fakekube.Request) int {
				if r.Verb != "patch" || r.Resource != resource {
					return 0
				}
				if seen++; seen <= after {
					return 0
				}
				return http.StatusServiceUnavailable
			})
		}
	}
	failing := func(call string, code codes.Code) func(*executing) {
		return func(x *executing) {
			x.recording.answer = func(c string) error {
				if c == call {
					return status.Error(code, "no")
				}
				return nil
			}
		}
	}
	for name, c := range map[string]struct {
		detach bool
		breaks func(*executing)
		calls  []string
		writes int // after it breaks, those that fail included
	}{
		"finalizer of the PersistentVolume": {false, refuse("persistentvolumes", 0), nil, 2},
		"finalizer of the VolumeAttachment": {false, refuse("volumeattachments", 0), nil, 2},
		"publish":                           {false, failing("publish id", codes.Internal), []string{"publish id"}, 2},
		"publish of what is not found":      {false, failing("publish id", codes.NotFound), []string{"publish id"}, 2},
		"status":                            {false, refuse("volumeattachments/status", 0), []string{"publish id"}, 3},
		"unpublish":                         {true, failing("unpublish id", codes.Internal), []string{"unpublish id"}, 0},
		"unpublish of what is not found":    {true, failing("unpublish id", codes.NotFound), []string{"unpublish id"}, 0},
		"finalizer of a detach":             {true, refuse("volumeattachments", 0), []string{"unpublish id"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inExecution(t, nil, func(x *executing) {
				if c.detach {
					must(t, x.look())
					x.delete()
				}
				before := 0
				writes := func() int {
					return x.api.Count("patch", "persistentvolumes") + x.api.Count("patch", "volumeattachments") + x.api.Count("patch", "volumeattachments/status")
				}
				before, x.recording.calls = writes(), nil
				c.breaks(x)
				va := x.Overlay.Attachment("va")
				_, lane := x.required("va")
				x.Queue.Add(queue.AttachmentKey("va"), lane, queue.Destination{})
				err := x.carryOut(x.start(x.t), va) // that writes no error
				if got := writes() - before; err == nil || got != c.writes || !slices.Equal(x.recording.calls, c.calls) {
					t.Errorf("%v after calls %v and %d writes, want an error after %v and %d", err, x.recording.calls, got, c.calls, c.writes)
				}
				if got := x.get(); c.detach && !attach.HasFinalizer(got.Finalizers, x.Table.Finalizer) || !c.detach && got.Status.Attached {
					t.Errorf("done in spite of the error: %+v", got)
				}
			})
		})
	}
}

// csi-attacher asks for the new node ID only: an attach goes on after one answer for the old one.
func TestAttachGoesOnAfterOneAnswerAtThePreviousTargetAndADetachAfterThree(t *testing.T) {
	refuse := func(c string) error {
		if c == "unpublish id" {
			return status.Error(codes.Internal, "no")
		}
		return nil
	}
	t.Run("attach", func(t *testing.T) {
		inExecution(t, nil, func(x *executing) {
			x.recording.answer = func(c string) error {
				if c == "publish id" {
					return status.Error(codes.DeadlineExceeded, "no")
				}
				return refuse(c)
			}
			if err := x.look(); err == nil {
				t.Fatal("attached")
			}
			x.register("id-new")
			if err := x.look(); !errors.Is(err, errBlocked) {
				t.Errorf("%v: want it to wait until the previous target is tried on its own", err)
			}
			x.Work(x.t.Context(), x.start(x.t))
			if err := x.lookWith(x.start(x.t)); err != nil {
				t.Error(err)
			}
			if want := []string{"publish id", "unpublish id", "unpublish id", "publish id-new"}; !slices.Equal(x.recording.calls, want) {
				t.Errorf("calls %v, want %v", x.recording.calls, want)
			}
			if _, dangling := x.Table.Dangling(routedTarget); !dangling || attach.NotedTarget(x.get()).NodeID != "id-new" {
				t.Errorf("dangling at the previous target: %v, noted: %v", dangling, attach.NotedTarget(x.get()))
			}
		})
	})
	t.Run("detach", func(t *testing.T) {
		inExecution(t, nil, func(x *executing) {
			must(t, x.look())
			x.register("id-new")
			x.recording.answer = refuse
			x.delete()
			for try := range 2 {
				if err := x.look(); err == nil || !attach.HasFinalizer(x.get().Finalizers, x.Table.Finalizer) {
					t.Fatalf("try %d goes on: %v", try, err)
				}
			}
			if err := x.look(); !errors.Is(err, errBlocked) {
				t.Errorf("%v: want it to wait until the previous target is tried on its own", err)
			}
			x.Work(x.t.Context(), x.start(x.t))
			if err := x.lookWith(x.start(x.t)); err != nil {
				t.Error(err)
			}
			if want := []string{"publish id", "unpublish id", "unpublish id", "unpublish id", "unpublish id", "unpublish id-new"}; !slices.Equal(x.recording.calls, want) {
				t.Errorf("calls %v, want %v", x.recording.calls, want)
			}
		})
	})
}

func TestOnlyTheDriversOwnErrorIsAnAnswer(t *testing.T) {
	d := routed(t)
	gone := func(err error) error { return &attach.CallError{Err: errors.Join(ErrDisconnected, err)} }
	unavailable := status.Error(codes.Unavailable, "gone")
	often := &queue.Item{Retries: queue.Retries{Disconnects: queue.DisconnectsAllowed}}
	for name, c := range map[string]struct {
		err  error
		e    *queue.Item
		want volume.Result
	}{
		"none":                     {nil, &queue.Item{}, volume.Succeeded},
		"the driver's answer":      {&attach.CallError{Err: status.Error(codes.NotFound, "no")}, &queue.Item{}, volume.Failed},
		"a timeout":                {&attach.CallError{Err: status.Error(codes.DeadlineExceeded, "no")}, &queue.Item{}, volume.Failed},
		"the lease does not last":  {&attach.CallError{Err: lease.ErrFenced}, &queue.Item{}, volume.NotDone},
		"the driver has gone":      {gone(unavailable), &queue.Item{}, volume.NotDone},
		"it goes with each call":   {gone(unavailable), often, volume.Failed},
		"the secret is not there":  {errors.New("not found"), &queue.Item{}, volume.NotDone},
		"the object has changed":   {attach.ErrStale, &queue.Item{}, volume.NotDone},
		"whose owner is not clear": {errOwnerUnclear, &queue.Item{}, volume.NotDone},
	} {
		t.Run(name, func(t *testing.T) {
			if got := d.resultOf(c.err, c.e); got != c.want {
				t.Errorf("result %d, want %d", got, c.want)
			}
		})
	}
}
