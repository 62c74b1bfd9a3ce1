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
	names      atomic.Pointer[map[string]bool] // of the drivers with WindDown
	finalizers atomic.Pointer[map[string]bool] // theirs
	changed    chan struct{}                   // has a value when something may have changed
}

func newWindDown() *windDown {
	w := &windDown{changed: make(chan struct{}, 1)}
	w.follow(nil)
	return w
}

// follow takes the drivers of a snapshot. What changes from now on is told of.
func (w *windDown) follow(want registry.Snapshot) {
	names, finalizers := map[string]bool{}, map[string]bool{}
	for name, d := range want {
		if d.WindDown {
			names[name], finalizers[attach.Finalizer(name)] = true, true
		}
	}
	w.names.Store(&names)
	w.finalizers.Store(&finalizers)
}

// driver notes that something of a driver has changed.
func (w *windDown) driver(name string) {
	if (*w.names.Load())[name] {
		w.wake()
	}
}

// volume notes that a PersistentVolume has changed which has, or had, these finalizers.
func (w *windDown) volume(finalizers []string) {
	theirs := *w.finalizers.Load()
	for _, finalizer := range finalizers {
		if theirs[finalizer] {
			w.wake()
		}
	}
}

func (w *windDown) wake() {
	select {
	case w.changed <- struct{}{}:
	default: // it is to be looked at already
	}
}

// needed returns the drivers of a snapshot that are to be served now: those with WindDown
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
		if attach.Leaving(pv, name) {
			return true
		}
	}
	h.mu.Lock()
	t := h.tables[name]
	h.mu.Unlock()
	return t != nil && (t.OwesDetach() || h.isUnseen(t))
}

// isUnseen reports whether there is a claim of a VolumeAttachment that is gone from the
// cache. The cache loses it before anybody is told: its volume may be attached.
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
