package hub

import (
	"maps"
	"slices"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// windDownEvery is the interval at which the drivers with WindDown are looked at.
const windDownEvery = time.Second

// needed returns the drivers of a snapshot that have to be served now: a driver with WindDown only if it is
// in use.
func (h *Hub) needed(want registry.Snapshot) registry.Snapshot {
	needed := maps.Clone(want)
	maps.DeleteFunc(needed, func(name string, d registry.Driver) bool { return d.WindDown && !h.isInUse(name) })
	return needed
}

// isInUse reports whether a volume of a driver is or may be attached, or a PersistentVolume has a finalizer
// that only an attacher of the driver removes.
func (h *Hub) isInUse(name string) bool {
	if slices.ContainsFunc(h.cluster.AttachmentsOfDriver(name), attach.MayBeAttached) {
		return true
	}
	if len(h.cluster.ReleasableVolumes(name)) > 0 {
		return true
	}
	h.mu.Lock()
	t := h.memories[name].table
	h.mu.Unlock()
	return t != nil && (t.OwesDetach() || h.hasUnseenDeletion(t))
}

// hasUnseenDeletion reports whether the object of a volume.Attachment is gone from the cache: the cache drops it before the
// event is handled, and its volume may be attached.
func (h *Hub) hasUnseenDeletion(t *volume.Table) bool {
	return slices.ContainsFunc(t.Attachments(), func(a volume.Attachment) bool { return h.cluster.Attachment(a.Name) == nil })
}
