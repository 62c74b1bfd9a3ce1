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

// windDown signals when drivers with WindDown may have nothing attached any more, or something again. Its
// methods do not block.
type windDown struct {
	drivers atomic.Pointer[map[string]bool] // names and finalizers of the drivers with WindDown
	changed chan struct{}                   // has a value when isInUse may have changed for a driver
}

func newWindDown() *windDown {
	w := &windDown{changed: make(chan struct{}, 1)}
	w.follow(nil)
	return w
}

// follow replaces the drivers by those of a snapshot.
func (w *windDown) follow(want registry.Snapshot) {
	drivers := map[string]bool{}
	for name, d := range want {
		if d.WindDown {
			drivers[name], drivers[attach.Finalizer(name)] = true, true
		}
	}
	w.drivers.Store(&drivers)
}

// note takes a change that concerns the drivers with these names or finalizers.
func (w *windDown) note(drivers ...string) {
	known := *w.drivers.Load()
	if !slices.ContainsFunc(drivers, func(d string) bool { return known[d] }) {
		return
	}
	select {
	case w.changed <- struct{}{}:
	default: // the signal is set already
	}
}

// needed returns the drivers of a snapshot that have to be served now: a driver with WindDown only if it is
// in use.
func (h *Hub) needed(want registry.Snapshot) registry.Snapshot {
	h.windDown.follow(want) // first, so that no change is missed
	needed := maps.Clone(want)
	maps.DeleteFunc(needed, func(name string, d registry.Driver) bool { return d.WindDown && !h.isInUse(name) })
	return needed
}

// isInUse reports whether a volume of a driver is or may be attached, or a PersistentVolume has a finalizer
// that only an attacher of the driver removes.
func (h *Hub) isInUse(name string) bool {
	if slices.ContainsFunc(h.cluster.AttachmentsOfDriver(name), mayBeAttached) {
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

// hasUnseenDeletion reports whether the object of a claim is gone from the cache: the cache drops it before the
// event is handled, and its volume may be attached.
func (h *Hub) hasUnseenDeletion(t *volume.Table) bool {
	return slices.ContainsFunc(t.Claims(), func(c volume.ClaimView) bool { return h.cluster.Attachment(c.Name) == nil })
}

// mayBeAttached reports whether the volume of a VolumeAttachment may be attached, or its driver's finalizer has
// to be removed. The finalizer is removed before the status says that the volume is detached.
func mayBeAttached(va *storagev1.VolumeAttachment) bool {
	return attach.HasFinalizer(va.Finalizers, attach.Finalizer(va.Spec.Attacher)) ||
		va.Status.Attached && va.Annotations[attach.AnnotationNodeID] != ""
}

// needsDriver reports whether a VolumeAttachment needs an attacher. If attachRequired is false, it does only
// while its volume may be attached.
func (h *Hub) needsDriver(va *storagev1.VolumeAttachment) bool {
	return h.cluster.AttachRequired(va.Spec.Attacher) || mayBeAttached(va)
}

// countAttached counts the VolumeAttachments of a driver whose volume may be attached.
func (h *Hub) countAttached(attacher string) int {
	n := 0
	for _, va := range h.cluster.AttachmentsOfDriver(attacher) {
		if mayBeAttached(va) {
			n++
		}
	}
	return n
}
