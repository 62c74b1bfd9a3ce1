package reconcile

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

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
