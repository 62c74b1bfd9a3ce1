package hub

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// Names of the indexes over VolumeAttachments, and of the one over PersistentVolumes.
const (
	byAttacher = "attacher"
	byVolume   = "persistentVolume"
	byNode     = "node"
	byNodeID   = "nodeID" // that is noted

	byGuardian = "guardian" // finalizer; only volumes that may have to lose it
)

// readTimeout bounds one request to the API server.
const readTimeout = 30 * time.Second

// stopTimeout bounds how long the end of the watches is waited for.
const stopTimeout = 5 * time.Second

// Cluster is the hub's view of the Kubernetes API: what all drivers share, watched
// once for the process. What it returns belongs to the caches and is never changed, but
// for PersistentVolumes, which are the caller's own.
type Cluster struct {
	kube        attach.Kube
	attachments cache.SharedIndexInformer
	volumes     cache.SharedIndexInformer
	nodes       cache.SharedIndexInformer
	drivers     cache.SharedIndexInformer
	running     sync.WaitGroup // the informers

	heard  []cache.InformerSynced // of each handler: whether it was told all that was there
	barred atomic.Bool            // CSIDriver objects may not be read

	mu     sync.Mutex
	ghosts map[string]*storedVolume // by name; guarded by mu
}

func newCluster(kube attach.Kube) (*Cluster, error) {
	core, storage := kube.CoreV1().RESTClient(), kube.StorageV1().RESTClient()
	c := &Cluster{
		kube:        kube,
		attachments: newInformer(storage, "volumeattachments", &storagev1.VolumeAttachment{}),
		volumes:     newInformer(core, "persistentvolumes", &corev1.PersistentVolume{}),
		nodes:       newInformer(storage, "csinodes", &storagev1.CSINode{}),
		drivers:     newInformer(storage, "csidrivers", &storagev1.CSIDriver{}),
		ghosts:      map[string]*storedVolume{},
	}
	err := c.attachments.AddIndexers(cache.Indexers{
		byAttacher: attachmentIndex(func(va *storagev1.VolumeAttachment) string { return va.Spec.Attacher }),
		byVolume:   attachmentIndex(attach.VolumeName),
		byNode:     attachmentIndex(func(va *storagev1.VolumeAttachment) string { return va.Spec.NodeName }),
		byNodeID:   attachmentIndex(func(va *storagev1.VolumeAttachment) string { return attach.NotedTarget(va).NodeID }),
	})
	if err != nil {
		return nil, fmt.Errorf("index volumeattachments: %w", err)
	}
	if err := c.volumes.AddIndexers(cache.Indexers{byGuardian: guardianIndex}); err != nil {
		return nil, fmt.Errorf("index persistentvolumes: %w", err)
	}
	err = c.drivers.SetWatchErrorHandlerWithContext(c.cannotWatchDrivers)
	if err != nil {
		return nil, fmt.Errorf("handle errors of csidrivers: %w", err)
	}
	return c, nil
}

// newInformer returns a cache of all objects of a resource, as toCache leaves them. They are not sent
// again from time to time: that would repeat every event to every driver, and after a
// watch that broke all are listed anyway.
func newInformer(client cache.Getter, resource string, example runtime.Object) cache.SharedIndexInformer {
	all := cache.NewListWatchFromClient(client, resource, metav1.NamespaceAll, fields.Everything())
	informer := cache.NewSharedIndexInformer(all, example, 0, cache.Indexers{})
	_ = informer.SetTransform(toCache) // fails only once it has started
	return informer
}

// cannotWatchDrivers lets the hub do without CSIDriver objects where it may not read
// them: csi-attacher's own role, with which the hub may have to do in the place of one
// sidecar, has no rule for them.
func (c *Cluster) cannotWatchDrivers(ctx context.Context, r *cache.Reflector, err error) {
	if !apierrors.IsForbidden(err) {
		cache.DefaultWatchErrorHandler(ctx, r, err)
		return
	}
	if !c.barred.Swap(true) {
		klog.FromContext(ctx).Info("CSIDriver objects may not be read: attachRequired is taken for true for every driver", "err", err)
	}
}

// driversKnown says whether CSIDriver objects are in their cache, or never will be.
func (c *Cluster) driversKnown() bool { return c.drivers.HasSynced() || c.barred.Load() }

func attachmentIndex(value func(*storagev1.VolumeAttachment) string) cache.IndexFunc {
	return func(obj any) ([]string, error) {
		va, ok := obj.(*storagev1.VolumeAttachment)
		if !ok {
			return nil, fmt.Errorf("index %T as a VolumeAttachment", obj)
		}
		if v := value(va); v != "" {
			return []string{v}, nil
		}
		return nil, nil
	}
}

// handlers take the events of each kind of object.
type handlers struct {
	attachments, volumes, nodes, drivers cache.ResourceEventHandlerFuncs
}

// listen adds handlers of events, before start.
func (c *Cluster) listen(h handlers) error {
	for _, add := range []struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{{c.attachments, h.attachments}, {c.volumes, h.volumes}, {c.nodes, h.nodes}, {c.drivers, h.drivers}} {
		registration, err := add.informer.AddEventHandler(add.handler)
		if err != nil {
			return err
		}
		if add.informer == c.drivers {
			c.heard = append(c.heard, func() bool { return registration.HasSynced() || c.barred.Load() })
			continue
		}
		c.heard = append(c.heard, registration.HasSynced)
	}
	return nil
}

// start begins to watch and blocks until every cache is filled. It returns early
// only when ctx ends, with its error. CSINodes are waited for too: without them
// an attach would fail for no reason.
func (c *Cluster) start(ctx context.Context) error {
	for _, informer := range []cache.SharedIndexInformer{c.attachments, c.volumes, c.nodes, c.drivers} {
		c.running.Go(func() { informer.RunWithContext(ctx) })
	}
	filled := []cache.InformerSynced{c.attachments.HasSynced, c.volumes.HasSynced, c.nodes.HasSynced, c.driversKnown}
	// The handlers too must be through with what was there: to a driver that begins it is
	// no news.
	if !cache.WaitForCacheSync(ctx.Done(), append(filled, c.heard...)...) {
		return fmt.Errorf("fill the caches: %w", context.Cause(ctx))
	}
	return nil
}

// stop waits for all goroutines that start began, once its ctx has ended, but not
// for long: while the API server refuses connections, client-go's reflector sleeps
// up to a minute without looking at its context, and a hub that is to stop would be
// killed before that.
func (c *Cluster) stop() {
	ended := make(chan struct{})
	go func() { c.running.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(stopTimeout):
	}
}

// attachmentsOfDriver returns the VolumeAttachments of a CSI driver.
func (c *Cluster) attachmentsOfDriver(driver string) []*storagev1.VolumeAttachment {
	return c.attachmentsBy(byAttacher, driver)
}

// attachmentsOfVolume returns the VolumeAttachments, of whatever driver, that name a PersistentVolume.
func (c *Cluster) attachmentsOfVolume(name string) []*storagev1.VolumeAttachment {
	return c.attachmentsBy(byVolume, name)
}

// attachmentsOnNode returns the VolumeAttachments, of whatever driver, of a Kubernetes node.
func (c *Cluster) attachmentsOnNode(node string) []*storagev1.VolumeAttachment {
	return c.attachmentsBy(byNode, node)
}

// attachmentsAtNodeID returns the VolumeAttachments, of whatever driver, that are noted at a node ID.
func (c *Cluster) attachmentsAtNodeID(nodeID string) []*storagev1.VolumeAttachment {
	return c.attachmentsBy(byNodeID, nodeID)
}

func (c *Cluster) attachmentsBy(index, value string) []*storagev1.VolumeAttachment {
	objs, err := c.attachments.GetIndexer().ByIndex(index, value)
	if err != nil {
		return nil // the index does not exist: excluded by newCluster
	}
	return asAttachments(objs)
}

func asAttachments(objs []any) []*storagev1.VolumeAttachment {
	vas := make([]*storagev1.VolumeAttachment, len(objs))
	for i, obj := range objs {
		vas[i] = obj.(*storagev1.VolumeAttachment)
	}
	return vas
}

// cachedAttachmentsVersion returns the resourceVersion up to which the cache has all VolumeAttachments.
func (c *Cluster) cachedAttachmentsVersion() string { return c.attachments.LastSyncResourceVersion() }

// allAttachments returns every VolumeAttachment.
func (c *Cluster) allAttachments() []*storagev1.VolumeAttachment {
	return asAttachments(c.attachments.GetStore().List())
}

// attachers counts the VolumeAttachments of each attacher.
func (c *Cluster) attachers() map[string]int {
	counts := map[string]int{}
	for _, attacher := range c.attachments.GetIndexer().ListIndexFuncValues(byAttacher) {
		keys, _ := c.attachments.GetIndexer().IndexKeys(byAttacher, attacher)
		if len(keys) > 0 {
			counts[attacher] = len(keys)
		}
	}
	return counts
}

// cachedAttachment returns the VolumeAttachment that the cache has, nil if it has none.
func (c *Cluster) cachedAttachment(name string) *storagev1.VolumeAttachment {
	if obj, ok, _ := c.attachments.GetStore().GetByKey(name); ok {
		return obj.(*storagev1.VolumeAttachment)
	}
	return nil
}

// volumeInUse says whether any VolumeAttachment, of whatever driver, names the volume.
func (c *Cluster) volumeInUse(name string) bool {
	keys, _ := c.attachments.GetIndexer().IndexKeys(byVolume, name)
	return len(keys) > 0
}

// csiNode returns a node's CSINode, nil if there is none. What the cache does not
// have is asked for once: it may have been created just before the VolumeAttachment.
func (c *Cluster) csiNode(ctx context.Context, name string) (*storagev1.CSINode, error) {
	if node := c.cachedCSINode(name); node != nil {
		return node, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	node, err := c.kube.StorageV1().CSINodes().Get(ctx, name, metav1.GetOptions{})
	return found(node, err)
}

// cachedCSINode returns the CSINode that the cache has, nil if it has none.
func (c *Cluster) cachedCSINode(name string) *storagev1.CSINode {
	if obj, ok, _ := c.nodes.GetIndexer().GetByKey(name); ok {
		return obj.(*storagev1.CSINode)
	}
	return nil
}

// cachedVolume returns the PersistentVolume that the cache has, nil if it has none.
func (c *Cluster) cachedVolume(name string) *corev1.PersistentVolume {
	if v := c.storedVolume(name); v != nil {
		return v.volume()
	}
	return nil
}

func (c *Cluster) storedVolume(name string) *storedVolume {
	if obj, ok, _ := c.volumes.GetIndexer().GetByKey(name); ok {
		return obj.(*storedVolume)
	}
	return nil
}

// leavingVolumes returns the PersistentVolumes that a finalizer guards and that may
// have to lose it.
func (c *Cluster) leavingVolumes(finalizer string) []*corev1.PersistentVolume {
	objs, err := c.volumes.GetIndexer().ByIndex(byGuardian, finalizer)
	if err != nil {
		return nil
	}
	pvs := make([]*corev1.PersistentVolume, len(objs))
	for i, obj := range objs {
		pvs[i] = obj.(*storedVolume).volume()
	}
	return pvs
}

// attachRequired says what the CSIDriver object of a driver says; without one, and
// without a word in it, volumes have to be attached.
func (c *Cluster) attachRequired(driver string) bool {
	obj, ok, _ := c.drivers.GetIndexer().GetByKey(driver)
	if !ok {
		return true
	}
	required := obj.(*storagev1.CSIDriver).Spec.AttachRequired
	return required == nil || *required
}

// volume returns a PersistentVolume as the API server has it now, nil if there is none.
func (c *Cluster) volume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		// Older API servers take any text for the name of a volume in a VolumeAttachment. As
		// part of a path this one would be another request, or an error about paths.
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	pv, err := c.kube.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	return found(pv, err)
}

// node returns a Node as the API server has it now, nil if there is none.
func (c *Cluster) node(ctx context.Context, name string) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	node, err := c.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	return found(node, err)
}

// attachment returns a VolumeAttachment as the API server has it now, nil if there is none.
func (c *Cluster) attachment(ctx context.Context, name string) (*storagev1.VolumeAttachment, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	va, err := c.kube.StorageV1().VolumeAttachments().Get(ctx, name, metav1.GetOptions{})
	return found(va, err)
}

// attachmentsVersion returns the resourceVersion of all VolumeAttachments together, as the API
// server has them now.
func (c *Cluster) attachmentsVersion(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	list, err := c.kube.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", fmt.Errorf("ask for the resourceVersion of volumeattachments: %w", err)
	}
	return list.ResourceVersion, nil
}

// found trims an object that was read, and turns "not found" into nil.
func found[T any](obj *T, err error) (*T, error) {
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	trim(obj)
	return obj, nil
}
