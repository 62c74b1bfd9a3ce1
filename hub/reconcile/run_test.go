package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2/ktesting"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/internal/loglimit"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

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

func TestBudgetOfWritesFollowsTheSettings(t *testing.T) {
	d := routed(t)
	if d.budget.Limit() != rate.Inf {
		t.Errorf("%v writes per second, want no limit by default", d.budget.Limit())
	}
	value := d.Settings()
	value.KubeAPI = registry.KubeAPI{QPS: 0.001, Burst: 2}
	d.SetLimits(value)
	for range 2 {
		if !d.budget.Allow() {
			t.Error("a write within the burst has to wait")
		}
	}
	if d.budget.Allow() {
		t.Error("a write beyond the budget passes")
	}
	value.KubeAPI = registry.KubeAPI{}
	d.SetLimits(value)
	if !d.budget.Allow() {
		t.Error("a write has to wait for a limit that was taken away")
	}
}

func TestBackoffDoublesUpToItsLimit(t *testing.T) {
	retry := registry.Retry{Initial: 500 * time.Millisecond, Max: time.Minute}
	lasting := status.Error(codes.InvalidArgument, "no")
	passing := status.Error(codes.Aborted, "busy")
	for _, tc := range []struct {
		name     string
		failures int
		err      error
		random   float64
		want     time.Duration
	}{
		{"first", 1, lasting, 0, 500 * time.Millisecond},
		{"second", 2, lasting, 0, time.Second},
		{"seventh", 7, lasting, 0, 32 * time.Second},
		{"at the limit", 8, lasting, 0, time.Minute},
		{"long after", 1000, lasting, 0, time.Minute},
		{"jitter takes off a fifth at most", 8, lasting, 1, 48 * time.Second},
		{"codes that pass soon wait at most a quarter", 1000, passing, 0, 15 * time.Second},
		{"no gRPC error", 1000, errors.New("persistentvolume not found"), 0, time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := backoff(retry, tc.failures, tc.err, func() float64 { return tc.random })
			if got != tc.want {
				t.Errorf("backoff after %d failures: %v, want %v", tc.failures, got, tc.want)
			}
		})
	}
}
