package hub

import (
	"maps"
	"slices"
	"sync/atomic"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// windDown tells when to look again at which drivers with WindDown something is left.
// Its methods do not block.
type windDown struct {
	drivers atomic.Pointer[map[string]bool] // names and finalizers of the drivers with WindDown
	changed chan struct{}                   // has a value when something may have changed
}

func newWindDown() *windDown {
	w := &windDown{changed: make(chan struct{}, 1)}
	w.follow(nil)
	return w
}

// follow takes the drivers of a snapshot. What changes from now on is reported.
func (w *windDown) follow(want registry.Snapshot) {
	drivers := map[string]bool{}
	for name, d := range want {
		if d.WindDown {
			drivers[name], drivers[attach.Finalizer(name)] = true, true
		}
	}
	w.drivers.Store(&drivers)
}

// note takes that something has changed for the drivers with these names or finalizers.
func (w *windDown) note(drivers ...string) {
	known := *w.drivers.Load()
	if !slices.ContainsFunc(drivers, func(d string) bool { return known[d] }) {
		return
	}
	select {
	case w.changed <- struct{}{}:
	default: // it is to be looked at already
	}
}

// needed returns the drivers of a snapshot that have to be served now: those with WindDown
// only if something is left of them.
func (h *Hub) needed(want registry.Snapshot) registry.Snapshot {
	h.windDown.follow(want) // before looking, so that no change falls in between
	needed := maps.Clone(want)
	maps.DeleteFunc(needed, func(name string, d registry.Driver) bool { return d.WindDown && !h.isLeft(name) })
	return needed
}

// isLeft reports whether anything of a driver still has to be undone: a volume that is or
// may be attached, or a finalizer that only whoever works for the driver takes away.
func (h *Hub) isLeft(name string) bool {
	if slices.ContainsFunc(h.cluster.AttachmentsOfDriver(name), isLeftOf) {
		return true
	}
	for _, pv := range h.cluster.ReleasableVolumes(attach.Finalizer(name)) {
		if attach.Releasable(pv, name) {
			return true
		}
	}
	h.mu.Lock()
	t := h.memories[name].table
	h.mu.Unlock()
	return t != nil && (t.OwesDetach() || h.isUnseen(t))
}

// isUnseen reports whether there is a claim of a VolumeAttachment that is gone from the cache: the cache
// drops it before the event is handled, and its volume may be attached.
func (h *Hub) isUnseen(t *volume.Table) bool {
	return slices.ContainsFunc(t.Claims(), func(c volume.ClaimView) bool { return h.cluster.Attachment(c.Name) == nil })
}

// isLeftOf reports whether something of its driver is left in a VolumeAttachment. The
// finalizer goes before the status says that the volume is detached.
func isLeftOf(va *storagev1.VolumeAttachment) bool {
	return attach.HasFinalizer(va.Finalizers, attach.Finalizer(va.Spec.Attacher)) ||
		va.Status.Attached && va.Annotations[attach.AnnotationNodeID] != ""
}

// needsDriver reports whether somebody has to work for the driver of a VolumeAttachment:
// where attachRequired is false, only if something is left of it.
func (h *Hub) needsDriver(va *storagev1.VolumeAttachment) bool {
	return h.cluster.AttachRequired(va.Spec.Attacher) || isLeftOf(va)
}

// countLeft counts the VolumeAttachments of an attacher in which something of it is left.
func (h *Hub) countLeft(attacher string) int {
	n := 0
	for _, va := range h.cluster.AttachmentsOfDriver(attacher) {
		if isLeftOf(va) {
			n++
		}
	}
	return n
}
