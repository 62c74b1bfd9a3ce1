package status

import "context"

// maxRenderings is how many expensive answers (pages and lists of VolumeAttachments) are rendered at
// once. Further requests wait.
const maxRenderings = 4

// limiter bounds the renderings that run at once: refreshing browsers must not take processor and
// memory from the hub's work. Sending is outside of the limit, so a slow reader delays no other.
type limiter chan struct{}

func newLimiter() limiter { return make(limiter, maxRenderings) }

// do runs f when fewer than maxRenderings run. It returns false if ctx ends before that.
func (l limiter) do(ctx context.Context, f func()) bool {
	select {
	case l <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	defer func() { <-l }()
	f()
	return true
}
