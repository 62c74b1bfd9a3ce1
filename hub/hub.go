package hub

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
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
	// Leases says which process works for which driver; nil: this one for all.
	Leases Leases
	// LeaseNamespace is where a driver's lease is if its settings do not say so.
	LeaseNamespace string
	// LeaseDuration is how long a driver that cannot be called from here is held before
	// other processes are let try. With Leases it must be positive.
	LeaseDuration time.Duration
	// Events records what goes wrong on the VolumeAttachments; nil: nobody does. It must
	// not block, and bounds the rate of Events.
	Events eventrecord.EventRecorder
	// Metrics counts what is done; nil: nobody does.
	Metrics *status.Metrics
	// Health is told when the hub is ready, and whether what should move moves; may be nil.
	Health *status.Health
	// Connect connects to a driver; nil means csiclient.ConnectCounting.
	Connect ConnectFunc
}

// Hub attaches and detaches volumes for a changing set of drivers.
type Hub struct {
	options  Options
	cluster  *cache.Cluster
	routes   *router
	windDown *windDown

	mu       sync.Mutex
	engaged  map[string]*engagement    // by driver; guarded by mu
	tables   map[string]*volume.Table  // by driver, those of the past included; guarded by mu
	overlays map[string]*cache.Overlay // by driver, as tables; guarded by mu
}

// New checks the options. It starts nothing.
func New(o Options) (*Hub, error) {
	if o.Kube == nil {
		return nil, errors.New("hub: Options.Kube is missing")
	}
	if o.Grace < 0 {
		return nil, fmt.Errorf("hub: Options.Grace is %v, it must not be negative", o.Grace)
	}
	if o.Leases != nil && o.LeaseNamespace == "" {
		return nil, errors.New("hub: Options.LeaseNamespace is missing")
	}
	if (o.Leases != nil) != (o.LeaseDuration > 0) {
		return nil, fmt.Errorf("hub: Options.LeaseDuration is %v, it must be positive with Leases and 0 without", o.LeaseDuration)
	}
	if o.Connect == nil {
		o.Connect = func(ctx context.Context, d registry.Driver) (Session, error) {
			return csiclient.ConnectCounting(ctx, d, o.Metrics.Driver(d.Name).Call)
		}
	}
	cluster, err := cache.New(o.Kube)
	if err != nil {
		return nil, err
	}
	h := &Hub{options: o, cluster: cluster, engaged: map[string]*engagement{}, tables: map[string]*volume.Table{}, overlays: map[string]*cache.Overlay{}, windDown: newWindDown()}
	h.routes = newRouter(cluster, h.observeDeletion, h.windDown)
	return h, nil
}

// overlay returns the own writes of a driver. They outlive what has made them: a driver that is served
// again at once would else call for what was written last, and the caches do not show yet.
func (h *Hub) overlay(logger klog.Logger, driver string) *cache.Overlay {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.overlays[driver] == nil {
		h.overlays[driver] = cache.NewOverlay(logger, h.cluster)
	}
	return h.overlays[driver]
}

// observeDeletion takes the last state of a VolumeAttachment of a driver that others work for: what
// it may have left attached when it vanished.
func (h *Hub) observeDeletion(va *storagev1.VolumeAttachment) {
	h.mu.Lock()
	t, e := h.tables[va.Spec.Attacher], h.engaged[va.Spec.Attacher]
	h.mu.Unlock()
	if t == nil {
		return
	}
	decider := attach.Driver{Name: va.Spec.Attacher, Capabilities: e.capabilities()}
	last, ok := decider.LastRecorded(attach.Facts{
		VolumeAttachment: va,
		PersistentVolume: h.cluster.CachedOrDeleted(va),
		CSINode:          h.cluster.CSINode(va.Spec.NodeName),
	})
	switch {
	case !ok:
	case cutShort(va, t.Finalizer):
		t.Observe(volume.IdentityOf(va), last, time.Now())
	default: // whoever has the lease has detached it
		t.Unconfirm(last.Target, va.UID)
	}
}

// capabilities are those that the driver had in its last session, none if there was none.
func (e *engagement) capabilities() csiclient.Capabilities {
	if e == nil {
		return csiclient.Capabilities{}
	}
	if p := e.post.Load(); p != nil {
		if s := p.connection.session.Load(); s != nil {
			return s.Info().Capabilities
		}
	}
	return csiclient.Capabilities{}
}

// Run serves the drivers of the latest snapshot until ctx ends, then returns when
// every one of them has drained. No driver's failure makes it return. A Hub can
// run once.
func (h *Hub) Run(ctx context.Context, updates <-chan registry.Snapshot) error {
	var synced, following atomic.Bool
	h.options.Health.AddReady("caches", holds(&synced, "the caches of the cluster's objects are not filled yet"))
	h.options.Health.AddReady("drivers", holds(&following, "which drivers to serve is not known yet"))
	h.options.Health.AddLive("caches", checkSync(time.Now(), synced.Load))
	h.options.Health.AddLive("queues", h.checkMoving)
	if err := h.routes.listen(); err != nil {
		return fmt.Errorf("listen to the cluster: %w", err)
	}
	// The caches outlive ctx: what drains still reads them.
	caches, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer h.cluster.Stop()
	defer stop()
	release := context.AfterFunc(ctx, stop) // until the first driver may need them
	if err := h.cluster.Start(caches); err != nil {
		return ignoreEnd(ctx, err)
	}
	if !release() {
		return nil
	}
	klog.FromContext(ctx).Info("Caches are filled")
	// The answers from which they were filled are as large again, and would stay the
	// process' until the heap has grown as far once more.
	debug.FreeOSMemory()
	synced.Store(true)
	h.follow(ctx, updates, func() { following.Store(true) })
	return nil
}

// holds is a check of readiness.
func holds(condition *atomic.Bool, otherwise string) func() error {
	return func() error {
		if !condition.Load() {
			return errors.New(otherwise)
		}
		return nil
	}
}

// ignoreEnd turns an error that is only the end of ctx into none.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
