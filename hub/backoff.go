package hub

import (
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// backoff returns how long to wait before the next try after so many failed ones
// in a row (at least 1): initial, doubled each time, at most max, less up to a
// fifth at random so that what failed together does not come back together.
// Errors that usually pass soon wait at most a quarter of max.
func backoff(retry registry.Retry, failures int, err error, random func() float64) time.Duration {
	limit := retry.Max
	if passesSoon(err) {
		limit = max(retry.Max/4, retry.Initial)
	}
	delay := limit
	if shift := failures - 1; shift < 32 && retry.Initial<<shift > 0 {
		delay = min(limit, retry.Initial<<shift)
	}
	return delay - time.Duration(random()*float64(delay)/5)
}

// passesSoon says whether the driver asks for another try (another operation is
// pending for the volume, it is busy, it went away, it took too long), or the
// Kubernetes API was not ready.
func passesSoon(err error) bool {
	if attach.NotReady(err) {
		return true
	}
	switch status.Code(err) {
	case codes.Aborted, codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Canceled:
		return true
	}
	return false
}

// jitter is the randomness of backoff outside tests.
func jitter() float64 { return rand.Float64() }
