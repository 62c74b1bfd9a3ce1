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

// checkSync is a check of liveness: caches that never fill are not worth waiting for.
func checkSync(began time.Time, synced func() bool) func() error {
	return func() error {
		if waited := time.Since(began); !synced() && waited > syncLimit {
			return fmt.Errorf("the caches of the cluster's objects are not filled after %s", waited.Round(time.Second))
		}
		return nil
	}
}

// checkMoving is a check of liveness: no driver's queue leaves work alone. That a driver
// itself does not answer is no reason to end the process.
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
