package hub

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

// syncLimit is how long the caches may take to fill: far longer than in the largest cluster. While the API
// server is away a restart does no harm.
const syncLimit = 10 * time.Minute

// checkSync returns a check of liveness that fails if the caches are not filled within syncLimit.
func checkSync(began time.Time, synced func() bool) func() error {
	return func() error {
		if waited := time.Since(began); !synced() && waited > syncLimit {
			return fmt.Errorf("the caches of the cluster's objects are not filled after %s", waited.Round(time.Second))
		}
		return nil
	}
}

// checkMoving is a check of liveness. It fails if an item could start and the loop that starts items stands
// still. A driver that does not answer does not fail it.
func (h *Hub) checkMoving() error {
	h.mu.Lock()
	managers := maps.Clone(h.managers)
	h.mu.Unlock()
	var wedged []error
	for name, m := range managers {
		if m.get().leader != nil && m.queue.IsWedged(time.Now()) {
			wedged = append(wedged, fmt.Errorf("work for %s has not been looked at for %s", name, queue.WedgedAfter))
		}
	}
	return errors.Join(wedged...)
}
