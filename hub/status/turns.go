package status

import "context"

// mostTurns is how much that costs is made at once: pages, and lists of
// VolumeAttachments. What follows waits.
const mostTurns = 4

// turns bounds what is made at once for those who look: many browsers that refresh must
// not take the processor and the memory from the work. What was made is sent outside of
// a turn: who reads slowly keeps nobody waiting.
type turns chan struct{}

func newTurns() turns { return make(turns, mostTurns) }

// do runs f in its turn. It returns false if ctx ended before that.
func (t turns) do(ctx context.Context, f func()) bool {
	select {
	case t <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	defer func() { <-t }()
	f()
	return true
}
