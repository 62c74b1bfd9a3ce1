package volume

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

// NeedsCapacity is what the queue asks.
func (t *Table) NeedsCapacity(key queue.Key, at queue.Destination, repair bool) bool {
	return (*beliefs)(t).NeedsCapacity(key, at, repair)
}

// FinalizerWasRemoved reports whether this process has removed the finalizer of a VolumeAttachment whose deletion was not reported yet.
func (t *Table) FinalizerWasRemoved(uid types.UID) bool { return t.released[uid] }

// Remains says what a Table still holds of dangling publications and of work, "" for nothing.
func (t *Table) Remains() string {
	items, _ := t.Queue.All()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(items)+len(t.dangling) == 0 {
		return ""
	}
	return fmt.Sprintf("%d items, and %d dangling publications", len(items), len(t.dangling))
}
