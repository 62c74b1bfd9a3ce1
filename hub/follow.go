package hub

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/driver"
	"github.com/csi-attach-hub/csi-attach-hub/hub/reconcile"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
	"github.com/csi-attach-hub/csi-attach-hub/internal/panics"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// served is a driver that is served, or drains.
type served struct {
	*driver.Manager
	retire context.CancelFunc
	ended  chan struct{} // closed when the driver has drained
}

// follow serves the drivers of each snapshot until ctx ends, and returns when all have drained. It does not
// interrupt a driver that is in the next snapshot too: the manager takes the new spec. A driver with WindDown
// is served only while it is in use. follow calls begun after each snapshot.
func (h *Hub) follow(ctx context.Context, updates <-chan registry.Snapshot, begun func()) {
	var all sync.WaitGroup
	defer all.Wait()
	running := map[string]*served{}
	var latest registry.Snapshot
	look := time.NewTicker(windDownEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case want, ok := <-updates:
			if !ok {
				updates = nil // no snapshot follows; the drivers of the latest one stay
				continue
			}
			latest = want
			h.apply(ctx, &all, running, h.needed(latest))
			begun()
		case <-look.C:
			h.apply(ctx, &all, running, h.needed(latest))
		}
	}
}

// apply retires, changes and starts managers until they serve the wanted drivers.
func (h *Hub) apply(ctx context.Context, all *sync.WaitGroup, running map[string]*served, want registry.Snapshot) {
	logger := klog.FromContext(ctx)
	for name, m := range running {
		if _, ok := want[name]; !ok {
			logger.Info("Driver is no longer configured, draining it", "driver", name)
			m.retire()
			delete(running, name)
		}
	}
	for name, spec := range want {
		m := running[name]
		if spec.WindDown && (m == nil || !m.Spec().WindDown) {
			logger.Info("Serving driver until none of its volumes is attached", "driver", name, "source", spec.Source)
		}
		if m == nil {
			running[name] = h.start(ctx, all, spec)
		} else if m.SetSpec(spec) {
			logger.Info("Driver settings changed", "driver", name, "source", spec.Source)
		}
	}
}

// start serves a driver until its manager is retired or ctx ends. If an earlier manager of the driver still
// drains, the new manager waits until that has ended.
func (h *Hub) start(ctx context.Context, all *sync.WaitGroup, spec registry.Driver) *served {
	logger := klog.FromContext(ctx).WithValues("driver", spec.Name)
	ctx, retire := context.WithCancel(klog.NewContext(ctx, logger))
	h.mu.Lock()
	defer h.mu.Unlock()
	remembered, ok := h.memories[spec.Name]
	if !ok {
		remembered = reconcile.NewMemory(logger, spec.Name, h.drivers.Cluster)
		h.memories[spec.Name] = remembered
	}
	m := &served{Manager: driver.New(&h.drivers, logger, spec, remembered), retire: retire, ended: make(chan struct{})}
	predecessor := h.managers[spec.Name]
	h.managers[spec.Name] = m
	panics.Go(all, m.Panicked, func() {
		defer h.forget(spec.Name, m)
		defer retire()
		if predecessor != nil {
			<-predecessor.ended
		}
		m.Serve(ctx)
	})
	return m
}

// forget drops a manager that has ended. The memory of its driver stays, without secrets.
func (h *Hub) forget(name string, m *served) {
	defer close(m.ended)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.managers[name] == m {
		delete(h.managers, name)
		h.drivers.Metrics.Forget(name)
		m.Table.DropSecrets()
	}
}

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
	if slices.ContainsFunc(h.drivers.Cluster.AttachmentsOfDriver(name), attach.MayBeAttached) {
		return true
	}
	if len(h.drivers.Cluster.ReleasableVolumes(name)) > 0 {
		return true
	}
	h.mu.Lock()
	t := h.memories[name].Table
	h.mu.Unlock()
	return t != nil && (t.OwesDetach() || h.hasUnseenDeletion(t))
}

// hasUnseenDeletion reports whether the object of a volume.Attachment is gone from the cache: the cache drops it before the
// event is handled, and its volume may be attached.
func (h *Hub) hasUnseenDeletion(t *volume.Table) bool {
	return slices.ContainsFunc(t.Attachments(), func(a volume.Attachment) bool { return h.drivers.Cluster.Attachment(a.Name) == nil })
}
