package hub

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/driver"
	"github.com/csi-attach-hub/csi-attach-hub/hub/reconcile"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
	"github.com/csi-attach-hub/csi-attach-hub/internal/panics"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// served is a driver that is or was served. The Hub's mu guards its fields.
type served struct {
	memory  reconcile.Memory   // is kept: volumes of a driver that is not served any more may still be attached
	manager *driver.Manager    // nil: it is not served
	retire  context.CancelFunc // nil: it is not served, or drains
	ended   chan struct{}      // closed when the latest manager has ended
}

// windDownEvery is the interval at which the drivers with WindDown are looked at.
const windDownEvery = time.Second

// follow serves the drivers of each snapshot until ctx ends, and returns when all have drained. It does not
// interrupt a driver that is in the next snapshot too: the manager takes the new spec. follow sets following when it has
// begun to serve the first snapshot.
func (h *Hub) follow(ctx context.Context, updates <-chan registry.Snapshot, following *atomic.Bool) {
	var all sync.WaitGroup
	defer all.Wait()
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
		case <-look.C:
			if !following.Load() {
				continue
			}
		}
		h.apply(ctx, &all, latest)
		following.Store(true)
	}
}

// apply retires, changes and starts managers until they serve the wanted drivers. A driver with WindDown is served only
// while it is in use.
func (h *Hub) apply(ctx context.Context, all *sync.WaitGroup, want registry.Snapshot) {
	logger := klog.FromContext(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	want = maps.Clone(want)
	maps.DeleteFunc(want, func(name string, spec registry.Driver) bool { return spec.WindDown && !h.isInUse(name) })
	for name, d := range h.drivers {
		if _, ok := want[name]; !ok && d.retire != nil {
			logger.Info("Driver is no longer configured, draining it", "driver", name)
			d.retire()
			d.retire = nil
		}
	}
	for name, spec := range want {
		d := h.drivers[name]
		serves := d != nil && d.retire != nil
		if spec.WindDown && !(serves && d.manager.Spec().WindDown) {
			logger.Info("Serving driver until none of its volumes is attached", "driver", name, "source", spec.Source)
		}
		if !serves {
			h.start(ctx, all, spec)
		} else if d.manager.SetSpec(spec) {
			logger.Info("Driver settings changed", "driver", name, "source", spec.Source)
		}
	}
}

// start serves a driver until its manager is retired or ctx ends. If an earlier manager of the driver still
// drains, the new manager waits until that has ended. The caller holds mu.
func (h *Hub) start(ctx context.Context, all *sync.WaitGroup, spec registry.Driver) {
	logger := klog.FromContext(ctx).WithValues("driver", spec.Name)
	d := h.drivers[spec.Name]
	if d == nil {
		d = &served{memory: reconcile.NewMemory(logger, spec.Name, h.options.Cluster)}
		h.drivers[spec.Name] = d
	}
	ctx, retire := context.WithCancel(klog.NewContext(ctx, logger))
	m, predecessor, ended := driver.New(&h.options, logger, spec, d.memory), d.ended, make(chan struct{})
	d.manager, d.retire, d.ended = m, retire, ended
	panics.Go(all, m.Panicked, func() {
		defer close(ended)
		defer retire()
		defer h.forget(d, m)
		if predecessor != nil {
			<-predecessor
		}
		m.Serve(ctx)
	})
}

// forget drops a manager that has ended. The memory of its driver stays, without secrets.
func (h *Hub) forget(d *served, m *driver.Manager) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d.manager == m {
		d.manager, d.retire = nil, nil
		h.options.Metrics.Forget(m.Spec().Name)
		m.Table.DropSecrets()
	}
}

// isInUse reports whether a volume of a driver is or may be attached, or a PersistentVolume has a finalizer
// that only an attacher of the driver removes. The caller holds mu.
func (h *Hub) isInUse(name string) bool {
	c := h.options.Cluster
	if slices.ContainsFunc(c.AttachmentsOfDriver(name), attach.MayBeAttached) || len(c.ReleasableVolumes(name)) > 0 {
		return true
	}
	d := h.drivers[name]
	// The cache drops an object before its event is handled, and its volume may be attached.
	isGone := func(a volume.Attachment) bool { return c.Attachment(a.Name) == nil }
	return d != nil && (d.memory.Table.OwesDetach() || slices.ContainsFunc(d.memory.Table.Attachments(), isGone))
}
