package baseline

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Options of a Baseline.
type Options struct {
	Kube    kubernetes.Interface // without a rate limit
	Drivers map[string]string    // name to endpoint, unix:///path
	// Fresh means that no PersistentVolume has its driver's finalizer yet.
	Fresh bool
	// Shared means that all volumes are shared between nodes.
	Shared bool
}

// Baseline attaches and detaches for every VolumeAttachment that it sees.
type Baseline struct {
	kube    kubernetes.Interface
	drivers map[string]csi.ControllerClient
	conns   []*grpc.ClientConn
	fresh   bool
	mode    csi.VolumeCapability_AccessMode_Mode

	mu     sync.Mutex
	work   map[types.UID]*work // guarded by mu
	marked map[string]bool     // PersistentVolumes that have their finalizer; guarded by mu
}

// work is the state of one VolumeAttachment.
type work struct {
	attached  chan struct{} // closed when it is attached; nil: no attach has begun
	detaching bool
}

// New makes a Baseline. Run connects it to the drivers.
func New(o Options) (*Baseline, error) {
	if o.Kube == nil || len(o.Drivers) == 0 {
		return nil, errors.New("make baseline: Kube and Drivers must be set")
	}
	b := &Baseline{kube: o.Kube, drivers: map[string]csi.ControllerClient{}, fresh: o.Fresh,
		work: map[types.UID]*work{}, marked: map[string]bool{}}
	b.mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	if o.Shared {
		b.mode = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	}
	for name, endpoint := range o.Drivers {
		conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, fmt.Errorf("connect to driver %s: %w", name, err)
		}
		b.conns = append(b.conns, conn)
		b.drivers[name] = csi.NewControllerClient(conn)
	}
	return b, nil
}

// Run blocks until ctx ends, and returns nil then, or until something fails. It calls ready once it
// watches the VolumeAttachments. It may be called once.
func (b *Baseline) Run(ctx context.Context, ready func()) error {
	defer b.close()
	if err := b.connect(ctx); err != nil {
		return err
	}
	all, running := errgroup.WithContext(ctx)
	attachments := b.kube.StorageV1().VolumeAttachments()
	saw := func(obj any) { b.see(running, all, obj.(*storagev1.VolumeAttachment)) }
	reflector := cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return attachments.List(ctx, opts)
		},
		WatchFuncWithContext: attachments.Watch,
	}, b.kube), &storagev1.VolumeAttachment{}, keepNothing(saw, b.forget, sync.OnceFunc(ready)), cache.ReflectorOptions{})
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

// keepNothing returns a reflector's store that keeps no object. The reflector calls its functions one
// at a time; ready follows the first list.
func keepNothing(saw func(obj any), forget func(*storagev1.VolumeAttachment), ready func()) cache.ReflectorStore {
	see := func(obj any) error {
		saw(obj)
		return nil
	}
	return &cache.FakeCustomStore{
		AddFunc: see, UpdateFunc: see,
		DeleteFunc: func(obj any) error {
			forget(obj.(*storagev1.VolumeAttachment))
			return nil
		},
		ReplaceFunc: func(all []any, _ string) error {
			for _, obj := range all {
				saw(obj)
			}
			ready()
			return nil
		},
	}
}

// connect makes one call to each driver, so that no measured call waits for a connection.
func (b *Baseline) connect(ctx context.Context) error {
	for name, driver := range b.drivers {
		if _, err := driver.ControllerGetCapabilities(ctx, &csi.ControllerGetCapabilitiesRequest{}); err != nil {
			return fmt.Errorf("connect to driver %s: %w", name, err)
		}
	}
	return nil
}

func (b *Baseline) close() {
	for _, conn := range b.conns {
		conn.Close()
	}
}

// see begins the attach or the detach that a VolumeAttachment needs.
func (b *Baseline) see(ctx context.Context, all *errgroup.Group, va *storagev1.VolumeAttachment) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.work[va.UID]
	if w == nil {
		w = &work{}
		b.work[va.UID] = w
	}
	switch deleting := va.DeletionTimestamp != nil; {
	case deleting && !w.detaching:
		w.detaching = true
		attached := w.attached
		all.Go(func() error { return b.detach(ctx, va, attached) })
	case !deleting && !va.Status.Attached && w.attached == nil:
		w.attached = make(chan struct{})
		all.Go(func() error { return b.attach(ctx, va, w.attached) })
	}
}

func (b *Baseline) forget(va *storagev1.VolumeAttachment) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.work, va.UID)
}

// lacksFinalizer reports, once for each volume, that it has no finalizer yet.
func (b *Baseline) lacksFinalizer(volume string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.fresh || b.marked[volume] {
		return false
	}
	b.marked[volume] = true
	return true
}
