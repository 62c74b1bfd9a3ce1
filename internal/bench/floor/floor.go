package floor

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Options of a Floor.
type Options struct {
	Kube    kubernetes.Interface // without a rate limit
	Drivers map[string]string    // name to endpoint, unix:///path
	// Fresh says that no PersistentVolume has its driver's finalizer yet.
	Fresh bool
}

// NodeID is every driver's ID of a node.
func NodeID(node string) string { return "id-of-" + node }

// Floor attaches and detaches everything that it sees.
type Floor struct {
	kube    kubernetes.Interface
	drivers map[string]csi.ControllerClient
	conns   []*grpc.ClientConn
	fresh   bool

	mu      sync.Mutex
	work    map[types.UID]*work // guarded by mu
	guarded map[string]bool     // PersistentVolumes that have their finalizer; guarded by mu
}

// work is what was begun for one VolumeAttachment.
type work struct {
	attached  chan struct{} // closed when it is; nil: not begun
	detaching bool
}

// New makes a Floor. It connects to the drivers when it runs.
func New(o Options) (*Floor, error) {
	if o.Kube == nil || len(o.Drivers) == 0 {
		return nil, errors.New("make floor: Kube and Drivers must be set")
	}
	f := &Floor{kube: o.Kube, drivers: map[string]csi.ControllerClient{}, fresh: o.Fresh,
		work: map[types.UID]*work{}, guarded: map[string]bool{}}
	for name, endpoint := range o.Drivers {
		conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, fmt.Errorf("connect to driver %s: %w", name, err)
		}
		f.conns = append(f.conns, conn)
		f.drivers[name] = csi.NewControllerClient(conn)
	}
	return f, nil
}

// Run blocks until ctx ends, which returns nil, or until something fails. ready is
// called when the VolumeAttachments are watched. It may be called once.
func (f *Floor) Run(ctx context.Context, ready func()) error {
	defer f.close()
	if err := f.connect(ctx); err != nil {
		return err
	}
	all, running := errgroup.WithContext(ctx)
	attachments := f.kube.StorageV1().VolumeAttachments()
	reflector := cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc:  listAll(attachments),
		WatchFuncWithContext: attachments.Watch,
	}, f.kube), &storagev1.VolumeAttachment{}, &eye{
		see:    func(va *storagev1.VolumeAttachment) { f.see(running, all, va) },
		forget: f.forget,
		ready:  sync.OnceFunc(ready),
	}, cache.ReflectorOptions{})
	all.Go(func() error {
		reflector.RunWithContext(running)
		return nil
	})
	<-running.Done()
	if err := all.Wait(); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// connect makes one call to each driver, so that none of those that count has to wait for
// a connection.
func (f *Floor) connect(ctx context.Context) error {
	for name, driver := range f.drivers {
		if _, err := driver.ControllerGetCapabilities(ctx, &csi.ControllerGetCapabilitiesRequest{}); err != nil {
			return fmt.Errorf("connect to driver %s: %w", name, err)
		}
	}
	return nil
}

func (f *Floor) close() {
	for _, conn := range f.conns {
		conn.Close()
	}
}

// see begins what a VolumeAttachment needs.
func (f *Floor) see(ctx context.Context, all *errgroup.Group, va *storagev1.VolumeAttachment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.work[va.UID]
	if w == nil {
		w = &work{}
		f.work[va.UID] = w
	}
	switch deleting := va.DeletionTimestamp != nil; {
	case deleting && !w.detaching:
		w.detaching = true
		attached := w.attached
		all.Go(func() error { return f.detach(ctx, va, attached) })
	case !deleting && !va.Status.Attached && w.attached == nil:
		w.attached = make(chan struct{})
		all.Go(func() error { return f.attach(ctx, va, w.attached) })
	}
}

func (f *Floor) forget(va *storagev1.VolumeAttachment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.work, va.UID)
}

// mustGuard says, once for each volume, that it has no finalizer yet.
func (f *Floor) mustGuard(volume string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.fresh || f.guarded[volume] {
		return false
	}
	f.guarded[volume] = true
	return true
}
