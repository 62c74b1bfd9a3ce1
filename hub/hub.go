package hub

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const (
	// A driver whose work panicked starts again, later each time it does.
	restartInitial = time.Second
	restartMax     = time.Minute
)

// Options of a Hub.
type Options struct {
	// Kube is the client for all reads and writes. It should have no rate limit of its
	// own: one driver would delay another.
	Kube kubernetes.Interface
	// Grace is how long calls in flight may take to end when a driver is retired or
	// the hub stops. They are cancelled then. Zero cancels at once.
	Grace time.Duration
	// Connect connects to a driver; nil means csiclient.Connect.
	Connect ConnectFunc
}

// Hub attaches and detaches volumes for a changing set of drivers.
type Hub struct {
	options Options
	cluster *Cluster
	routes  *router
}

// New checks the options. It starts nothing.
func New(o Options) (*Hub, error) {
	if o.Kube == nil {
		return nil, errors.New("hub: Options.Kube is missing")
	}
	if o.Grace < 0 {
		return nil, fmt.Errorf("hub: Options.Grace is %v, it must not be negative", o.Grace)
	}
	if o.Connect == nil {
		o.Connect = func(ctx context.Context, name string, endpoint registry.Endpoint) (Session, error) {
			return csiclient.Connect(ctx, name, endpoint)
		}
	}
	cluster, err := newCluster(o.Kube)
	if err != nil {
		return nil, err
	}
	return &Hub{options: o, cluster: cluster, routes: newRouter(cluster)}, nil
}

// Run serves the drivers of the latest snapshot until ctx ends, then returns when
// every one of them has drained. No driver's failure makes it return. A Hub can
// run once.
func (h *Hub) Run(ctx context.Context, updates <-chan registry.Snapshot) error {
	if err := h.routes.listen(); err != nil {
		return fmt.Errorf("listen to the cluster: %w", err)
	}
	// The caches outlive ctx: what drains still reads them.
	caches, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer h.cluster.stop()
	defer stop()
	release := context.AfterFunc(ctx, stop) // until the first driver may need them
	if err := h.cluster.start(caches); err != nil {
		return ignoreEnd(ctx, err)
	}
	if !release() {
		return nil
	}
	klog.FromContext(ctx).Info("Caches are filled")
	h.follow(ctx, updates)
	return nil
}

// ignoreEnd turns an error that is only the end of ctx into none.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// follow makes what runs match each snapshot, until ctx ends and all has drained.
func (h *Hub) follow(ctx context.Context, updates <-chan registry.Snapshot) {
	running := map[string]*engagement{}
	ended := map[string]<-chan struct{}{} // of the latest engagement of each name
	var all sync.WaitGroup
	defer all.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case want, ok := <-updates:
			if !ok {
				updates = nil // nothing more will come; what runs goes on
				continue
			}
			for name, e := range running {
				if value, ok := want[name]; !ok || value != e.value {
					e.retire()
					delete(running, name)
				}
			}
			for name, value := range want {
				if running[name] == nil {
					running[name] = h.engage(ctx, &all, value, ended[name])
					ended[name] = running[name].ended
				}
			}
		}
	}
}

// engagement is a driver that is being served.
type engagement struct {
	value  registry.Driver
	retire context.CancelFunc
	ended  chan struct{} // closed when it has drained
}

// engage serves a driver until it is retired or ctx ends, for ever again if its
// work panics. What its workers remember outlives that. It begins when the
// predecessor has ended, if there is one.
func (h *Hub) engage(ctx context.Context, all *sync.WaitGroup, value registry.Driver, predecessor <-chan struct{}) *engagement {
	logger := klog.FromContext(ctx).WithValues("driver", value.Name)
	ctx, retire := context.WithCancel(klog.NewContext(ctx, logger))
	e := &engagement{value: value, retire: retire, ended: make(chan struct{})}
	ledger := newLedger(attach.Finalizer(value.Name))
	all.Go(func() {
		defer close(e.ended)
		defer retire()
		if predecessor != nil {
			<-predecessor
		}
		for delay := restartInitial; ctx.Err() == nil; delay = min(2*delay, restartMax) {
			began := time.Now()
			err := h.newDriver(logger, value, ledger).run(ctx)
			if err == nil || ctx.Err() != nil {
				return
			}
			if time.Since(began) > restartMax {
				delay = restartInitial
			}
			logger.Error(err, "Serving the driver went wrong, starting it again", "in", delay)
			sleep(ctx, delay)
		}
	})
	return e
}

func (h *Hub) newDriver(logger klog.Logger, value registry.Driver, l *ledger) *driver {
	return &driver{
		value:     value,
		finalizer: l.finalizer,
		cluster:   h.cluster,
		routes:    h.routes,
		connect:   h.options.Connect,
		grace:     h.options.Grace,
		ledger:    l,
		overlay:   newOverlay(logger, h.cluster, l),
		queue:     newQueue(value.Workers),
	}
}
