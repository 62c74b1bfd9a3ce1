package cache

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// AttachmentsOfDriver returns the VolumeAttachments of a CSI driver.
func (c *Cluster) AttachmentsOfDriver(driver string) []*storagev1.VolumeAttachment {
	return c.attachmentsBy(byDriver, driver)
}

// AttachmentsOfVolume returns the VolumeAttachments of all drivers that name a PersistentVolume.
func (c *Cluster) AttachmentsOfVolume(name string) []*storagev1.VolumeAttachment {
	return slices.DeleteFunc(c.attachmentsBy(byVolume, volumeBucket(name)), func(va *storagev1.VolumeAttachment) bool {
		return attach.VolumeName(va) != name
	})
}

// AttachmentsOnNode returns the VolumeAttachments of all drivers that name a Kubernetes node.
func (c *Cluster) AttachmentsOnNode(node string) []*storagev1.VolumeAttachment {
	return c.attachmentsBy(byNode, node)
}

// AttachmentsAtNodeID returns the VolumeAttachments of all drivers whose note names a node ID.
func (c *Cluster) AttachmentsAtNodeID(nodeID string) []*storagev1.VolumeAttachment {
	return c.attachmentsBy(byNodeID, nodeID)
}

func (c *Cluster) attachmentsBy(index, value string) []*storagev1.VolumeAttachment {
	objs, _ := c.Attachments.GetIndexer().ByIndex(index, value) // fails only for an unknown index
	return all[*storagev1.VolumeAttachment](objs)
}

// AttachmentsOfHandle returns the VolumeAttachments of a CSI driver that have a volume handle: in their note or,
// without a note, in the PersistentVolume, its last state or the inline specification. With "" it returns the
// VolumeAttachments whose handle is not known.
//
// It takes time in proportion to the VolumeAttachments of the driver. An index would take
// 300 bytes for each VolumeAttachment, and only handles of dangling publications are looked up.
func (c *Cluster) AttachmentsOfHandle(driver, handle string) []*storagev1.VolumeAttachment {
	return slices.DeleteFunc(c.AttachmentsOfDriver(driver), func(va *storagev1.VolumeAttachment) bool { return c.VolumeHandle(va) != handle })
}

// VolumeHandle returns the volume handle of a VolumeAttachment: the noted handle, or else the handle of its
// PersistentVolume or inline specification, "" if it is not known.
func (c *Cluster) VolumeHandle(va *storagev1.VolumeAttachment) string {
	return attach.HandleOf(attach.Inputs{VolumeAttachment: va, PersistentVolume: c.VolumeOrDeleted(attach.VolumeName(va))})
}

// AllAttachments returns every VolumeAttachment.
func (c *Cluster) AllAttachments() []*storagev1.VolumeAttachment {
	return all[*storagev1.VolumeAttachment](c.Attachments.GetStore().List())
}

// all returns the objects of a cache by their type.
func all[T any](objs []any) []T {
	typed := make([]T, len(objs))
	for i, obj := range objs {
		typed[i] = obj.(T)
	}
	return typed
}

// AttachmentsVersion returns the resourceVersion up to which the cache has all VolumeAttachments.
// ReadAttachmentsVersion returns the resourceVersion that the API server has.
func (c *Cluster) AttachmentsVersion() string {
	return c.Attachments.GetIndexer().LastStoreSyncResourceVersion()
}

// cached returns an object from its cache, the zero T if it is not there.
func cached[T any](from toolscache.KeyGetter, name string) T {
	obj, _, _ := from.GetByKey(name)
	object, _ := obj.(T)
	return object
}

// Attachment returns a VolumeAttachment from the cache, nil if it is not there.
func (c *Cluster) Attachment(name string) *storagev1.VolumeAttachment {
	return cached[*storagev1.VolumeAttachment](c.Attachments.GetStore(), name)
}

// VolumeInUse reports whether a VolumeAttachment of any driver names a PersistentVolume.
func (c *Cluster) VolumeInUse(name string) bool {
	return len(c.AttachmentsOfVolume(name)) > 0
}

// Volume returns a PersistentVolume from the cache, nil if it is not there.
func (c *Cluster) Volume(name string) *attach.Volume {
	return cached[*attach.Volume](c.Volumes.GetStore(), name)
}

// KeepDeleted keeps the last state of a PersistentVolume that is gone, as one that is being deleted, if a VolumeAttachment names
// it. A PersistentVolume can be deleted while a VolumeAttachment still names it, if a client removes its finalizers.
// csi-attacher notes no volume handle in the VolumeAttachment. Then only the last state of the PersistentVolume
// has the handle of the volume to detach (external-attacher issue 235).
func (c *Cluster) KeepDeleted(v *attach.Volume) {
	if c.VolumeInUse(v.Name) {
		last := *v
		last.Deleted = cmp.Or(v.Deleted, new(metav1.Now()))
		c.deleted.Store(v.Name, &last)
	}
}

// DropDeleted drops the last state of a PersistentVolume that exists again, or that no VolumeAttachment names
// any more.
func (c *Cluster) DropDeleted(name string) { c.deleted.Delete(name) }

// DeletedVolume returns the last state of a PersistentVolume that is gone, nil if none is kept.
func (c *Cluster) DeletedVolume(name string) *attach.Volume {
	v, _ := c.deleted.Load(name)
	deleted, _ := v.(*attach.Volume)
	return deleted
}

// VolumeOrDeleted returns a PersistentVolume from the cache, or else its last state, nil if neither is known.
func (c *Cluster) VolumeOrDeleted(name string) *attach.Volume {
	return cmp.Or(c.Volume(name), c.DeletedVolume(name))
}

// AllVolumes returns every PersistentVolume.
func (c *Cluster) AllVolumes() []*attach.Volume {
	return all[*attach.Volume](c.Volumes.GetStore().List())
}

// SecretsOfDriver returns the Secrets that calls for the volumes of a CSI driver need, each once, sorted.
func (c *Cluster) SecretsOfDriver(driver string) []corev1.SecretReference {
	secrets := map[corev1.SecretReference]bool{}
	for _, v := range c.AllVolumes() {
		if v.Driver == driver && v.SecretRef != nil {
			secrets[*v.SecretRef] = true
		}
	}
	for _, va := range c.AttachmentsOfDriver(driver) {
		if inline := va.Spec.Source.InlineVolumeSpec; inline != nil && inline.CSI != nil && inline.CSI.ControllerPublishSecretRef != nil {
			secrets[*inline.CSI.ControllerPublishSecretRef] = true
		}
	}
	return slices.SortedFunc(maps.Keys(secrets), func(a, b corev1.SecretReference) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// NodesOfDriver returns the names of the nodes for which a driver has registered a node ID, by node ID and in no order.
func (c *Cluster) NodesOfDriver(driver string) map[string][]string {
	nodes := map[string][]string{}
	for _, obj := range c.Nodes.GetStore().List() {
		node := obj.(*storagev1.CSINode)
		if id, ok := attach.NodeID(node, driver); ok {
			nodes[id] = append(nodes[id], node.Name)
		}
	}
	return nodes
}

// VolumesLosingFinalizer returns the PersistentVolumes from which the finalizer of a driver must be removed, unless a VolumeAttachment names them.
func (c *Cluster) VolumesLosingFinalizer(driver string) []*attach.Volume {
	objs, _ := c.Volumes.GetIndexer().ByIndex(byLostFinalizer, attach.Finalizer(driver)) // fails only for an unknown index
	return slices.DeleteFunc(all[*attach.Volume](objs), func(v *attach.Volume) bool { return !v.LosesFinalizer(driver) })
}

// CSINode returns a CSINode from the cache, nil if it is not there.
func (c *Cluster) CSINode(name string) *storagev1.CSINode {
	return cached[*storagev1.CSINode](c.Nodes.GetStore(), name)
}

// CSIDriver returns the CSIDriver object of a driver from the cache, nil if it is not there.
func (c *Cluster) CSIDriver(driver string) *storagev1.CSIDriver {
	return cached[*storagev1.CSIDriver](c.Drivers.GetStore(), driver)
}

// AttachRequired returns attachRequired of a CSIDriver object, true if the object or the field is missing.
func AttachRequired(object *storagev1.CSIDriver) bool {
	return object == nil || object.Spec.AttachRequired == nil || *object.Spec.AttachRequired
}

// readTimeout bounds one request to the API server.
const readTimeout = 30 * time.Second

// ReadAttachment returns a VolumeAttachment as the API server has it now, nil if there is none.
func (c *Cluster) ReadAttachment(ctx context.Context, name string) (*storagev1.VolumeAttachment, error) {
	return read(ctx, name, c.kube.StorageV1().VolumeAttachments().Get)
}

// ReadAttachmentsVersion returns the resourceVersion of the collection of VolumeAttachments, as
// the API server has it now.
func (c *Cluster) ReadAttachmentsVersion(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	list, err := c.kube.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", fmt.Errorf("read the resourceVersion of all VolumeAttachments: %w", err)
	}
	return list.ResourceVersion, nil
}

// ReadVolume returns a PersistentVolume as the API server has it now, nil if there is none.
func (c *Cluster) ReadVolume(ctx context.Context, name string) (*attach.Volume, error) {
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		// Older API servers accept any text as the name of a PersistentVolume in a
		// VolumeAttachment. As part of a path it would make another request, or an error
		// about paths.
		return nil, nil
	}
	pv, err := read(ctx, name, c.kube.CoreV1().PersistentVolumes().Get)
	return attach.VolumeOf(pv), err
}

// ReadNode returns a Node as the API server has it now, nil if there is none. Nodes are not cached.
func (c *Cluster) ReadNode(ctx context.Context, name string) (*corev1.Node, error) {
	return read(ctx, name, c.kube.CoreV1().Nodes().Get)
}

// Inputs returns the inputs of a decision about a VolumeAttachment as the caches have them, with the last state of its
// PersistentVolume if that is gone.
func (c *Cluster) Inputs(va *storagev1.VolumeAttachment) attach.Inputs {
	return attach.Inputs{VolumeAttachment: va, PersistentVolume: c.VolumeOrDeleted(attach.VolumeName(va)), CSINode: c.CSINode(va.Spec.NodeName)}
}

// Inputs is Cluster.Inputs with the newest known state of the PersistentVolume.
func (o *Overlay) Inputs(va *storagev1.VolumeAttachment) attach.Inputs {
	return attach.Inputs{VolumeAttachment: va, PersistentVolume: o.VolumeOrDeleted(attach.VolumeName(va)), CSINode: o.cluster.CSINode(va.Spec.NodeName)}
}

// FindCSINode returns the CSINode of a VolumeAttachment from the cache, nil if there is none. It reads the CSINode
// from the API server if the cache may be behind it: a node can get its CSINode just before its first
// VolumeAttachment, and a former holder of the lease may have noted a node ID that the cache does not show yet. What is
// attached stays where it is noted, so its CSINode makes no difference.
func (c *Cluster) FindCSINode(ctx context.Context, va *storagev1.VolumeAttachment) (node *storagev1.CSINode, fresh bool, err error) {
	noted := attach.NotedTarget(va).NodeID
	node = c.CSINode(va.Spec.NodeName)
	stays := va.Status.Attached && va.DeletionTimestamp == nil
	if id, ok := attach.NodeID(node, va.Spec.Attacher); node != nil && (stays || !ok || noted == "" || id == noted) {
		return node, false, nil
	}
	node, err = read(ctx, va.Spec.NodeName, c.kube.StorageV1().CSINodes().Get)
	return node, err == nil, err
}

// read reads an object from the API server and trims it. It returns nil, and no error, if the API server
// has no such object. It blocks for at most readTimeout.
func read[T any](ctx context.Context, name string, get func(context.Context, string, metav1.GetOptions) (*T, error)) (*T, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	obj, err := get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	trim(obj)
	return obj, nil
}
