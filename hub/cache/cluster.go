package cache

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
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// Names of the indexes over VolumeAttachments, and of the one over PersistentVolumes.
const (
	byAttacher = "attacher"
	byVolume   = "persistentVolume"
	byNode     = "node"
	byNodeID   = "nodeID" // that is noted

	byReleasable = "releasable" // finalizer; only volumes that may have to lose it
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
	attachments toolscache.SharedIndexInformer
	volumes     toolscache.SharedIndexInformer
	nodes       toolscache.SharedIndexInformer
	drivers     toolscache.SharedIndexInformer
	running     sync.WaitGroup // the informers

	handlersSynced   []toolscache.InformerSynced // of each handler: whether it was told all that was there
	driversForbidden atomic.Bool                 // CSIDriver objects may not be read

	mu      sync.Mutex
	deleted map[string]*StoredVolume // by name; guarded by mu
}

func New(kube attach.Kube) (*Cluster, error) {
	core, storage := kube.CoreV1().RESTClient(), kube.StorageV1().RESTClient()
	c := &Cluster{
		kube:        kube,
		attachments: newInformer(storage, "volumeattachments", &storagev1.VolumeAttachment{}),
		volumes:     newInformer(core, "persistentvolumes", &corev1.PersistentVolume{}),
		nodes:       newInformer(storage, "csinodes", &storagev1.CSINode{}),
		drivers:     newInformer(storage, "csidrivers", &storagev1.CSIDriver{}),
		deleted:     map[string]*StoredVolume{},
	}
	err := c.attachments.AddIndexers(toolscache.Indexers{
		byAttacher: attachmentIndex(func(va *storagev1.VolumeAttachment) string { return va.Spec.Attacher }),
		byVolume:   attachmentIndex(attach.VolumeName),
		byNode:     attachmentIndex(func(va *storagev1.VolumeAttachment) string { return va.Spec.NodeName }),
		byNodeID:   attachmentIndex(func(va *storagev1.VolumeAttachment) string { return attach.NotedTarget(va).NodeID }),
	})
	if err != nil {
		return nil, fmt.Errorf("index volumeattachments: %w", err)
	}
	if err := c.volumes.AddIndexers(toolscache.Indexers{byReleasable: releasableIndex}); err != nil {
		return nil, fmt.Errorf("index persistentvolumes: %w", err)
	}
	err = c.drivers.SetWatchErrorHandlerWithContext(c.handleDriverWatchError)
	if err != nil {
		return nil, fmt.Errorf("handle errors of csidrivers: %w", err)
	}
	return c, nil
}

// newInformer returns a cache of all objects of a resource, as toCache leaves them. They are not sent
// again from time to time: that would repeat every event to every driver, and after a
// watch that broke all are listed anyway.
func newInformer(client toolscache.Getter, resource string, example runtime.Object) toolscache.SharedIndexInformer {
	all := toolscache.NewListWatchFromClient(client, resource, metav1.NamespaceAll, fields.Everything())
	informer := toolscache.NewSharedIndexInformer(all, example, 0, toolscache.Indexers{})
	_ = informer.SetTransform(toCache) // fails only once it has started
	return informer
}

// handleDriverWatchError lets the hub do without CSIDriver objects where it may not read
// them: csi-attacher's own role, with which the hub may have to do in the place of one
// sidecar, has no rule for them.
func (c *Cluster) handleDriverWatchError(ctx context.Context, r *toolscache.Reflector, err error) {
	if !apierrors.IsForbidden(err) {
		toolscache.DefaultWatchErrorHandler(ctx, r, err)
		return
	}
	if !c.driversForbidden.Swap(true) {
		klog.FromContext(ctx).Info("CSIDriver objects may not be read: attachRequired is taken for true for every driver", "err", err)
	}
}

// driversSynced says whether CSIDriver objects are in their cache, or never will be.
func (c *Cluster) driversSynced() bool { return c.drivers.HasSynced() || c.driversForbidden.Load() }

func attachmentIndex(value func(*storagev1.VolumeAttachment) string) toolscache.IndexFunc {
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

// Handlers take the events of each kind of object.
type Handlers struct {
	Attachments, Volumes, Nodes, Drivers toolscache.ResourceEventHandlerFuncs
}

// Listen adds handlers of events, before start.
func (c *Cluster) Listen(h Handlers) error {
	for _, add := range []struct {
		informer toolscache.SharedIndexInformer
		handler  toolscache.ResourceEventHandler
	}{{c.attachments, h.Attachments}, {c.volumes, h.Volumes}, {c.nodes, h.Nodes}, {c.drivers, h.Drivers}} {
		registration, err := add.informer.AddEventHandler(add.handler)
		if err != nil {
			return err
		}
		if add.informer == c.drivers {
			c.handlersSynced = append(c.handlersSynced, func() bool { return registration.HasSynced() || c.driversForbidden.Load() })
			continue
		}
		c.handlersSynced = append(c.handlersSynced, registration.HasSynced)
	}
	return nil
}

// Start begins to watch and blocks until every cache is filled. It returns early
// only when ctx ends, with its error. CSINodes are waited for too: without them
// an attach would fail for no reason.
func (c *Cluster) Start(ctx context.Context) error {
	for _, informer := range []toolscache.SharedIndexInformer{c.attachments, c.volumes, c.nodes, c.drivers} {
		c.running.Go(func() { informer.RunWithContext(ctx) })
	}
	filled := []toolscache.InformerSynced{c.attachments.HasSynced, c.volumes.HasSynced, c.nodes.HasSynced, c.driversSynced}
	// The handlers too must be through with what was there: to a driver that begins it is
	// no news.
	if !toolscache.WaitForCacheSync(ctx.Done(), append(filled, c.handlersSynced...)...) {
		return fmt.Errorf("fill the caches: %w", context.Cause(ctx))
	}
	return nil
}

// Stop waits for all goroutines that start began, once its ctx has ended, but not
// for long: while the API server refuses connections, client-go's reflector sleeps
// up to a minute without looking at its context, and a hub that is to stop would be
// killed before that.
func (c *Cluster) Stop() {
	ended := make(chan struct{})
	go func() { c.running.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(stopTimeout):
	}
}

// AttachmentsOfDriver returns the VolumeAttachments of a CSI driver.
func (c *Cluster) AttachmentsOfDriver(driver string) []*storagev1.VolumeAttachment {
	return c.attachmentsBy(byAttacher, driver)
}

// AttachmentsOfVolume returns the VolumeAttachments, of whatever driver, that name a PersistentVolume.
func (c *Cluster) AttachmentsOfVolume(name string) []*storagev1.VolumeAttachment {
	return c.attachmentsBy(byVolume, name)
}

// AttachmentsOnNode returns the VolumeAttachments, of whatever driver, of a Kubernetes node.
func (c *Cluster) AttachmentsOnNode(node string) []*storagev1.VolumeAttachment {
	return c.attachmentsBy(byNode, node)
}

// AttachmentsAtNodeID returns the VolumeAttachments, of whatever driver, that are noted at a node ID.
func (c *Cluster) AttachmentsAtNodeID(nodeID string) []*storagev1.VolumeAttachment {
	return c.attachmentsBy(byNodeID, nodeID)
}

func (c *Cluster) attachmentsBy(index, value string) []*storagev1.VolumeAttachment {
	objs, err := c.attachments.GetIndexer().ByIndex(index, value)
	if err != nil {
		return nil // the index does not exist: excluded by New
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

// CachedAttachmentsVersion returns the resourceVersion up to which the cache has all VolumeAttachments.
func (c *Cluster) AttachmentsVersion() string { return c.attachments.LastSyncResourceVersion() }

// AllAttachments returns every VolumeAttachment.
func (c *Cluster) AllAttachments() []*storagev1.VolumeAttachment {
	return asAttachments(c.attachments.GetStore().List())
}

// Attachers counts the VolumeAttachments of each attacher.
func (c *Cluster) CountByDriver() map[string]int {
	counts := map[string]int{}
	for _, attacher := range c.attachments.GetIndexer().ListIndexFuncValues(byAttacher) {
		keys, _ := c.attachments.GetIndexer().IndexKeys(byAttacher, attacher)
		if len(keys) > 0 {
			counts[attacher] = len(keys)
		}
	}
	return counts
}

// CachedAttachment returns the VolumeAttachment that the cache has, nil if it has none.
func (c *Cluster) Attachment(name string) *storagev1.VolumeAttachment {
	if obj, ok, _ := c.attachments.GetStore().GetByKey(name); ok {
		return obj.(*storagev1.VolumeAttachment)
	}
	return nil
}

// VolumeInUse says whether any VolumeAttachment, of whatever driver, names the volume.
func (c *Cluster) VolumeInUse(name string) bool {
	keys, _ := c.attachments.GetIndexer().IndexKeys(byVolume, name)
	return len(keys) > 0
}

// CSINode returns a node's CSINode, nil if there is none. What the cache does not
// have is asked for once: it may have been created just before the VolumeAttachment.
func (c *Cluster) FindCSINode(ctx context.Context, name string) (*storagev1.CSINode, error) {
	if node := c.CSINode(name); node != nil {
		return node, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	node, err := c.kube.StorageV1().CSINodes().Get(ctx, name, metav1.GetOptions{})
	return nilIfNotFound(node, err)
}

// CachedCSINode returns the CSINode that the cache has, nil if it has none.
func (c *Cluster) CSINode(name string) *storagev1.CSINode {
	if obj, ok, _ := c.nodes.GetIndexer().GetByKey(name); ok {
		return obj.(*storagev1.CSINode)
	}
	return nil
}

// CachedVolume returns the PersistentVolume that the cache has, nil if it has none.
func (c *Cluster) Volume(name string) *corev1.PersistentVolume {
	if v := c.StoredVolume(name); v != nil {
		return v.PersistentVolume()
	}
	return nil
}

func (c *Cluster) StoredVolume(name string) *StoredVolume {
	if obj, ok, _ := c.volumes.GetIndexer().GetByKey(name); ok {
		return obj.(*StoredVolume)
	}
	return nil
}

// LeavingVolumes returns the PersistentVolumes that a finalizer guards and that may
// have to lose it.
func (c *Cluster) ReleasableVolumes(finalizer string) []*corev1.PersistentVolume {
	objs, err := c.volumes.GetIndexer().ByIndex(byReleasable, finalizer)
	if err != nil {
		return nil
	}
	pvs := make([]*corev1.PersistentVolume, len(objs))
	for i, obj := range objs {
		pvs[i] = obj.(*StoredVolume).PersistentVolume()
	}
	return pvs
}

// AttachRequired says what the CSIDriver object of a driver says; without one, and
// without a word in it, volumes have to be attached.
func (c *Cluster) AttachRequired(driver string) bool {
	obj, ok, _ := c.drivers.GetIndexer().GetByKey(driver)
	if !ok {
		return true
	}
	required := obj.(*storagev1.CSIDriver).Spec.AttachRequired
	return required == nil || *required
}

// Volume returns a PersistentVolume as the API server has it now, nil if there is none.
func (c *Cluster) ReadVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		// Older API servers take any text for the name of a volume in a VolumeAttachment. As
		// part of a path this one would be another request, or an error about paths.
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	pv, err := c.kube.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	return nilIfNotFound(pv, err)
}

// Node returns a Node as the API server has it now, nil if there is none.
func (c *Cluster) ReadNode(ctx context.Context, name string) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	node, err := c.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	return nilIfNotFound(node, err)
}

// Attachment returns a VolumeAttachment as the API server has it now, nil if there is none.
func (c *Cluster) ReadAttachment(ctx context.Context, name string) (*storagev1.VolumeAttachment, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	va, err := c.kube.StorageV1().VolumeAttachments().Get(ctx, name, metav1.GetOptions{})
	return nilIfNotFound(va, err)
}

// AttachmentsVersion returns the resourceVersion of all VolumeAttachments together, as the API
// server has them now.
func (c *Cluster) ReadAttachmentsVersion(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	list, err := c.kube.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", fmt.Errorf("ask for the resourceVersion of volumeattachments: %w", err)
	}
	return list.ResourceVersion, nil
}

// found trims an object that was read, and turns "not found" into nil.
func nilIfNotFound[T any](obj *T, err error) (*T, error) {
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	trim(obj)
	return obj, nil
}
