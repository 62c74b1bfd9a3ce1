package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/driver"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/reconcile"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/hub/view"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
	"github.com/csi-attach-hub/csi-attach-hub/internal/panics"
	"github.com/csi-attach-hub/csi-attach-hub/internal/probes"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// Options of a Hub. New sets Cluster, Routes and View.
type Options = driver.Options

// Hub attaches and detaches volumes for a changing set of drivers.
type Hub struct {
	view.View // for the status

	options Options

	following atomic.Bool // the first snapshot is being served

	mu      sync.Mutex
	drivers map[string]*served // by name, also those that are not served any more; guarded by mu
}

// New returns a Hub. It starts nothing.
func New(o Options) (*Hub, error) {
	if (o.Leases != nil) != (o.LeaseDuration > 0) {
		return nil, fmt.Errorf("hub: Options.LeaseDuration is %v, it must be positive with Leases and 0 without", o.LeaseDuration)
	}
	o.Metrics, o.Probes = cmp.Or(o.Metrics, status.NewMetrics()), cmp.Or(o.Probes, new(probes.Probes))
	if o.Connect == nil {
		o.Connect = func(ctx context.Context, d registry.Driver) (driver.Session, error) {
			return csiclient.Connect(ctx, d, o.Metrics.Driver(d.Name).Call)
		}
	}
	cluster := cache.New(o.Kube)
	h := &Hub{options: o, drivers: map[string]*served{}}
	h.options.Cluster, h.options.Routes, h.options.View = cluster, &reconcile.Router{Cluster: cluster, Elsewhere: h.observeDeletion}, &h.View
	h.View = view.View{Cluster: cluster, Leases: o.Leases, LeaseOf: o.LeaseOf, Rights: o.Rights, Served: h.served}
	return h, nil
}

// observeDeletion takes the last state of a deleted VolumeAttachment of a driver that this process does not
// work for, and remembers the volume if it may still be attached. It does not block.
func (h *Hub) observeDeletion(va *storagev1.VolumeAttachment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d := h.drivers[va.Spec.Attacher]; d != nil {
		decider := attach.Driver{Name: va.Spec.Attacher}
		if d.manager != nil {
			decider.Capabilities = d.manager.Decider().Capabilities
		}
		d.memory.ObserveDeletion(decider, h.options.Cluster.Inputs(va))
	}
}

// Run serves the drivers of the latest snapshot until ctx ends, and returns when all have drained. The failure
// of a driver does not end it. A Hub can run only once.
func (h *Hub) Run(ctx context.Context, updates <-chan registry.Snapshot) error {
	var synced atomic.Bool
	h.options.Probes.Add(probes.Ready, "caches", check(&synced, 0, "the caches of the cluster's objects are not filled yet: the log names what cannot be listed"))
	h.options.Probes.Add(probes.Ready, "drivers", check(&h.following, 0, "which drivers to serve is not known yet"))
	h.options.Probes.Add(probes.Live, "caches", check(&synced, syncLimit, fmt.Sprintf("the caches of the cluster's objects are not filled after %s", syncLimit)))
	h.options.Probes.Add(probes.Live, "queues", h.checkMoving)
	// The caches outlive ctx: drivers that drain still read them.
	caches, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer h.options.Cluster.Stop()
	defer stop()
	release := context.AfterFunc(ctx, stop) // before the first driver may need them
	if err := h.options.Cluster.Start(caches, h.options.Routes.Handlers()); err != nil {
		if ctx.Err() != nil {
			return nil // the end has caused the error
		}
		return err
	}
	if !release() {
		return nil
	}
	klog.FromContext(ctx).Info("Caches synced")
	// The lists that filled the caches are garbage now, and as large as the caches. The process would keep
	// their memory until the heap has doubled.
	debug.FreeOSMemory()
	synced.Store(true)
	h.follow(ctx, updates)
	return nil
}

// syncLimit is how long the caches may take to fill: far longer than in the largest cluster. While the API
// server cannot be reached a restart does no harm.
const syncLimit = 10 * time.Minute

// check returns a check that fails with a text while a condition is not true, but not before a time has passed.
func check(condition *atomic.Bool, after time.Duration, otherwise string) func() error {
	began := time.Now()
	return func() error {
		if condition.Load() || time.Since(began) < after {
			return nil
		}
		return errors.New(otherwise)
	}
}

// checkMoving is a check of liveness. It fails if an item could start and the loop that starts items does
// not move. A driver that does not answer does not fail it.
func (h *Hub) checkMoving() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var wedged []error
	for name, d := range h.drivers {
		if d.memory.Queue.IsWedged(time.Now()) {
			wedged = append(wedged, fmt.Errorf("work for %s has not been looked at for %s", name, queue.WedgedAfter))
		}
	}
	return errors.Join(wedged...)
}

// served returns the managers' look functions, by driver; nil before the first snapshot.
func (h *Hub) served() map[string]func() view.Driver {
	if !h.following.Load() {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	looks := map[string]func() view.Driver{}
	for name, d := range h.drivers {
		if d.manager != nil {
			looks[name] = d.manager.Look
		}
	}
	return looks
}

// served is a driver that is or was served. The Hub's mu guards its fields.
type served struct {
	memory  reconcile.Memory   // is kept: volumes of a driver that is not served any more may still be attached
	manager *driver.Manager    // nil: it is not served
	retire  context.CancelFunc // nil: it is not served, or drains
	slot    chan struct{}      // of the manager that works; room for one
}

// windDownEvery is the interval at which the drivers with WindDown are looked at.
const windDownEvery = time.Second

// follow serves the drivers of each snapshot until ctx ends, and returns when all have drained. It does not
// interrupt a driver that is in the next snapshot too: the manager takes the new spec.
func (h *Hub) follow(ctx context.Context, updates <-chan registry.Snapshot) {
	var all sync.WaitGroup
	defer all.Wait()
	var latest registry.Snapshot
	var look <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case want, ok := <-updates:
			if !ok {
				updates = nil // no snapshot follows; the drivers of the latest one stay
				continue
			}
			latest, look = want, time.Tick(windDownEvery)
		case <-look:
		}
		h.apply(ctx, &all, latest)
		h.following.Store(true)
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
		d = &served{memory: reconcile.NewMemory(logger, spec.Name, h.options.Cluster), slot: make(chan struct{}, 1)}
		h.drivers[spec.Name] = d
	}
	ctx, retire := context.WithCancel(klog.NewContext(ctx, logger))
	m := driver.New(&h.options, logger, spec, d.memory)
	d.manager, d.retire = m, retire
	panics.Go(all, m.Panicked, func() {
		defer retire()
		d.slot <- struct{}{}
		defer func() { <-d.slot }()
		defer h.forget(d, m)
		m.Serve(ctx)
	})
}

// forget drops a manager that has ended. The memory of its driver stays, without secrets.
func (h *Hub) forget(d *served, m *driver.Manager) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d.manager == m {
		d.manager, d.retire = nil, nil
		h.options.Metrics.Forget(m.Driver)
		m.Table.DropSecrets()
	}
}

// isInUse reports whether a volume of a driver is or may be attached, or a PersistentVolume has a finalizer
// that only an attacher of the driver removes. The caller holds mu.
func (h *Hub) isInUse(name string) bool {
	d, c := h.drivers[name], h.options.Cluster
	// The cache drops an object before its event is handled, and its volume may be attached.
	isGone := func(a volume.Attachment) bool { return c.Attachment(a.Name) == nil }
	return slices.ContainsFunc(c.AttachmentsOfDriver(name), attach.MayBeAttached) || len(c.VolumesLosingFinalizer(name)) > 0 ||
		d != nil && (d.memory.Table.OwesDetach() || slices.ContainsFunc(d.memory.Table.Attachments(), isGone))
}
