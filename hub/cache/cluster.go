package cache

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// stopTimeout bounds how long Stop waits for the watches to end.
const stopTimeout = 5 * time.Second

// Cluster is the hub's view of the Kubernetes API. It watches once for the process, and all drivers share it.
// After Start its methods are safe for concurrent use.
//
// The objects that it returns belong to the caches and must not be changed.
type Cluster struct {
	Informers

	kube    attach.Kube
	running sync.WaitGroup // the informers

	driversForbidden atomic.Bool // the hub may not read CSIDriver objects
	deleted          sync.Map    // *attach.Volume by name, see KeepDeleted
}

// New returns a Cluster that reads through a client. It starts nothing.
func New(kube attach.Kube) *Cluster {
	core, storage := kube.CoreV1().RESTClient(), kube.StorageV1().RESTClient()
	c := Over(kube, Informers{
		Attachments: newInformer(storage, "volumeattachments", &storagev1.VolumeAttachment{}),
		Volumes:     newInformer(core, "persistentvolumes", &corev1.PersistentVolume{}),
		Nodes:       newInformer(storage, "csinodes", &storagev1.CSINode{}),
		Drivers:     newInformer(storage, "csidrivers", &storagev1.CSIDriver{}),
	})
	_ = c.Drivers.SetWatchErrorHandlerWithContext(c.handleDriverWatchError) // fails only once the informer has started
	return c
}

// Informers are the caches of a Cluster: of *storagev1.VolumeAttachment, *attach.Volume, *storagev1.CSINode and
// *storagev1.CSIDriver.
type Informers struct {
	Attachments, Volumes, Nodes, Drivers toolscache.SharedIndexInformer
}

// Over returns a Cluster over caches that the caller fills, without watches. Start may not be called.
func Over(kube attach.Kube, i Informers) *Cluster {
	_ = i.Attachments.AddIndexers(attachmentIndexers()) // both fail only once the informer has started
	_ = i.Volumes.AddIndexers(toolscache.Indexers{byLostFinalizer: lostFinalizerIndex})
	return &Cluster{kube: kube, Informers: i}
}

// Handlers take the events of each kind of object. They must not block: a slow handler delays
// the events of every driver. Volumes takes *attach.Volume.
type Handlers struct {
	Attachments, Volumes, Nodes, Drivers toolscache.ResourceEventHandlerFuncs
}

// Start starts the watches and blocks until every cache is filled and every handler has handled each object of
// the first listing. It returns an error only if ctx ends before that. The watches run until ctx ends. It must be called once.
//
// Start waits for CSINodes too: without them the first attaches would fail. It waits for the handlers so that a
// driver that begins later gets no event of an object that it has found in the caches already.
func (c *Cluster) Start(ctx context.Context, h Handlers) error {
	var synced []toolscache.InformerSynced
	for _, watch := range []struct {
		informer toolscache.SharedIndexInformer
		handler  toolscache.ResourceEventHandler
	}{{c.Attachments, h.Attachments}, {c.Volumes, h.Volumes}, {c.Nodes, h.Nodes}, {c.Drivers, h.Drivers}} {
		handled, err := watch.informer.AddEventHandler(watch.handler)
		if err != nil {
			return err
		}
		synced = append(synced, func() bool { return handled.HasSynced() || watch.informer == c.Drivers && c.driversForbidden.Load() })
		c.running.Go(func() { watch.informer.RunWithContext(ctx) })
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		return fmt.Errorf("fill the caches: %w", context.Cause(ctx))
	}
	return nil
}

// Stop waits for the watches to end after the context of Start has ended, for at most 5 seconds.
// While the API server refuses connections, client-go's reflector sleeps for up to a minute
// without looking at its context; a hub that waited for it would be killed.
func (c *Cluster) Stop() {
	ended := make(chan struct{})
	go func() { c.running.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(stopTimeout):
	}
}
