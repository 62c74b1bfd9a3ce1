package reconcile

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
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
