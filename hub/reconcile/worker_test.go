package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2/ktesting"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/internal/loglimit"
)

func TestOnlyErrorsOfTheVolumeAreForItsStatus(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"the driver's answer":    {&attach.CallError{Err: status.Error(codes.Internal, "no")}, true},
		"the object has changed": {attach.ErrStale, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := isOfTheVolume(&queue.Item{}, c.err); got != c.want {
				t.Errorf("for the status: %v, want %v", got, c.want)
			}
		})
	}
}

// The next try follows at once, and nobody needs to do anything about it.
func TestFirstChangeOfAnObjectIsNoErrorLine(t *testing.T) {
	for verbosity, want := range map[int]string{
		0: "E Attach failed 2, ",
		2: "I Attach met a change of the object, trying again <nil>, E Attach failed 2, ",
	} {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(verbosity)))
		w, e := &Worker{log: loglimit.New(logBurst, logEvery)}, &queue.Item{}
		w.logFailed(logger, e, attach.Attaching, 1, causeOf(attach.ErrStale), 0, attach.ErrStale)
		w.logFailed(logger, e, attach.Attaching, 2, causeOf(attach.ErrStale), time.Second, attach.ErrStale)
		got := ""
		for _, line := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
			var tries any
			if i := slices.Index(line.ParameterKVList, any("tries")); i >= 0 {
				tries = line.ParameterKVList[i+1]
			}
			got += fmt.Sprint(map[ktesting.LogType]string{ktesting.LogError: "E ", ktesting.LogInfo: "I "}[line.Type], line.Message, " ", tries, ", ")
		}
		if got != want {
			t.Errorf("verbosity %d: got %q, want %q", verbosity, got, want)
		}
	}
}

func TestOnlyWhatTheDriverSaysInTimeIsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		deadline := status.Error(codes.DeadlineExceeded, "context deadline exceeded")
		for err, want := range map[error]bool{
			deadline:                                true, // the deadline has not passed: it is the driver's own
			status.Error(codes.Unavailable, "busy"): true,
			status.Error(codes.Internal, "broken"):  true,
			errors.Join(ErrDisconnected, status.Error(codes.Unavailable, "EOF")): false,
			lease.ErrFenced: false,
		} {
			if got := isAnswer(ctx, err); got != want {
				t.Errorf("%v: %v, want %v", err, got, want)
			}
		}
		time.Sleep(time.Second)
		if isAnswer(ctx, deadline) {
			t.Error("the deadline of the hub counts as an answer")
		}
	})
}
