package hub

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// syncLimit is how long the caches may take to fill: far longer than the largest
// cluster needs. While the API server is away a restart does no harm.
const syncLimit = 10 * time.Minute

// checkSync returns a check of liveness that fails if the caches are not filled for long.
func checkSync(began time.Time, synced func() bool) func() error {
	return func() error {
		if waited := time.Since(began); !synced() && waited > syncLimit {
			return fmt.Errorf("the caches of the cluster's objects are not filled after %s", waited.Round(time.Second))
		}
		return nil
	}
}

// checkMoving is a check of liveness: it fails if work waits in a driver's queue and nobody looks for it. A
// driver that does not answer is no reason to end the process.
func (h *Hub) checkMoving() error {
	h.mu.Lock()
	managers := maps.Clone(h.managers)
	h.mu.Unlock()
	var wedged []error
	for name, m := range managers {
		if m.get().leader != nil && m.table.IsWedged(time.Now()) {
			wedged = append(wedged, fmt.Errorf("work for %s has not been looked at for %s", name, volume.WedgedAfter))
		}
	}
	return errors.Join(wedged...)
}
