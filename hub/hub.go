package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	eventrecord "k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/driver"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/reconcile"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/hub/view"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// Options of a Hub.
type Options struct {
	// Kube is the client for all reads and writes. It should have no rate limit of its
	// own: one driver would delay another.
	Kube attach.Kube
	// Grace is how long calls in flight may take to end when a driver is retired or
	// the hub stops. They are cancelled then. Zero cancels at once.
	Grace time.Duration
	// Leases says which process works for which driver; nil: this process works for all.
	Leases driver.Leases
	// LeaseNamespace is the namespace of a driver's lease if the settings name none.
	LeaseNamespace string
	// LeaseDuration is the duration of the leases. A leader that cannot call its driver for that long
	// releases the lease, so that other processes can try. It must be positive with Leases, and 0 without.
	LeaseDuration time.Duration
	// Events records Events on VolumeAttachments; nil: there are none. It must not block, and
	// bounds their rate.
	Events eventrecord.EventRecorder
	// Metrics counts operations and calls; nil: nobody sees them.
	Metrics *status.Metrics
	// Probes receives the checks of readiness and liveness; may be nil.
	Probes *status.Probes
	// Connect connects to a driver; nil means csiclient.Connect.
	Connect driver.ConnectFunc
	// Rights asks for the rights of this process; nil: the checklist does not have them.
	Rights view.RightsFunc
}

// Hub attaches and detaches volumes for a changing set of drivers.
type Hub struct {
	view.View // for the status

	drivers driver.Options
	probes  *status.Probes

	mu       sync.Mutex
	managers map[string]*served          // by driver; guarded by mu
	memories map[string]reconcile.Memory // by driver, also of drivers that are not served any more; guarded by mu
}

// New returns a Hub. It starts nothing.
func New(o Options) (*Hub, error) {
	if (o.Leases != nil) != (o.LeaseDuration > 0) {
		return nil, fmt.Errorf("hub: Options.LeaseDuration is %v, it must be positive with Leases and 0 without", o.LeaseDuration)
	}
	o.Metrics, o.Probes = cmp.Or(o.Metrics, status.NewMetrics()), cmp.Or(o.Probes, new(status.Probes))
	if o.Connect == nil {
		o.Connect = func(ctx context.Context, d registry.Driver) (driver.Session, error) {
			return csiclient.Connect(ctx, d, o.Metrics.Driver(d.Name).Call)
		}
	}
	cluster, err := cache.New(o.Kube)
	if err != nil {
		return nil, err
	}
	h := &Hub{probes: o.Probes, managers: map[string]*served{}, memories: map[string]reconcile.Memory{}}
	h.drivers = driver.Options{Kube: o.Kube, Grace: o.Grace, Leases: o.Leases, LeaseNamespace: o.LeaseNamespace, LeaseDuration: o.LeaseDuration,
		Events: o.Events, Metrics: o.Metrics, Connect: o.Connect, Cluster: cluster, Routes: reconcile.NewRouter(cluster, h.observeDeletion), View: &h.View}
	h.View = view.View{Cluster: cluster, Leases: o.Leases, LeaseOf: h.drivers.LeaseOf, Rights: o.Rights, Served: h.served}
	return h, nil
}

// observeDeletion takes the last state of a deleted VolumeAttachment of a driver that this process does not
// work for, and remembers the volume if it may still be attached. It does not block.
func (h *Hub) observeDeletion(va *storagev1.VolumeAttachment) {
	h.mu.Lock()
	memory, m := h.memories[va.Spec.Attacher], h.managers[va.Spec.Attacher]
	h.mu.Unlock()
	if memory.Table == nil {
		return
	}
	decider := attach.Driver{Name: va.Spec.Attacher}
	if m != nil {
		decider.Capabilities = m.Decider().Capabilities
	}
	memory.ObserveDeletion(decider, h.drivers.Cluster.Inputs(va))
}

// Run serves the drivers of the latest snapshot until ctx ends, and returns when all have drained. The failure
// of a driver does not end it. A Hub can run only once.
func (h *Hub) Run(ctx context.Context, updates <-chan registry.Snapshot) error {
	var synced, following atomic.Bool
	h.probes.Add(status.Ready, "caches", holds(&synced, "the caches of the cluster's objects are not filled yet"))
	h.probes.Add(status.Ready, "drivers", holds(&following, "which drivers to serve is not known yet"))
	h.probes.Add(status.Live, "caches", checkSync(time.Now(), synced.Load))
	h.probes.Add(status.Live, "queues", h.checkMoving)
	if err := h.drivers.Cluster.Listen(h.drivers.Routes.Handlers()); err != nil {
		return fmt.Errorf("listen to the cluster: %w", err)
	}
	// The caches outlive ctx: drivers that drain still read them.
	caches, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer h.drivers.Cluster.Stop()
	defer stop()
	release := context.AfterFunc(ctx, stop) // before the first driver may need them
	if err := h.drivers.Cluster.Start(caches); err != nil {
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
	h.follow(ctx, updates, func() { following.Store(true) })
	return nil
}

// holds returns a check of readiness that fails with a text until the condition is true.
func holds(condition *atomic.Bool, otherwise string) func() error {
	return func() error {
		if !condition.Load() {
			return errors.New(otherwise)
		}
		return nil
	}
}

// syncLimit is how long the caches may take to fill: far longer than in the largest cluster. While the API
// server is away a restart does no harm.
const syncLimit = 10 * time.Minute

// checkSync returns a check of liveness that fails if the caches are not filled within syncLimit.
func checkSync(began time.Time, synced func() bool) func() error {
	return func() error {
		if waited := time.Since(began); !synced() && waited > syncLimit {
			return fmt.Errorf("the caches of the cluster's objects are not filled after %s", waited.Round(time.Second))
		}
		return nil
	}
}

// checkMoving is a check of liveness. It fails if an item could start and the loop that starts items stands
// still. A driver that does not answer does not fail it.
func (h *Hub) checkMoving() error {
	h.mu.Lock()
	managers := maps.Clone(h.managers)
	h.mu.Unlock()
	var wedged []error
	for name, m := range managers {
		if m.IsWedged(time.Now()) {
			wedged = append(wedged, fmt.Errorf("work for %s has not been looked at for %s", name, queue.WedgedAfter))
		}
	}
	return errors.Join(wedged...)
}

// served returns the managers' look functions, by driver.
func (h *Hub) served() map[string]func() view.Driver {
	h.mu.Lock()
	defer h.mu.Unlock()
	looks := make(map[string]func() view.Driver, len(h.managers))
	for name, m := range h.managers {
		looks[name] = m.Look
	}
	return looks
}
