package status

import "context"

// maxRenderings is how many answers that cost much are rendered at once: pages, and lists of
// VolumeAttachments. Further requests wait.
const maxRenderings = 4

// limiter bounds what is rendered at once: many browsers that refresh must not take processor
// and memory from the work. Answers are sent outside of it: a slow reader delays nobody.
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
