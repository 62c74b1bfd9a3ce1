package cache

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

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

// CachedInputs is Cluster.Inputs with the newest known state of the PersistentVolume, and none if it is gone.
func (o *Overlay) CachedInputs(va *storagev1.VolumeAttachment) attach.Inputs {
	return attach.Inputs{VolumeAttachment: va, PersistentVolume: o.Volume(attach.VolumeName(va)), CSINode: o.cluster.CSINode(va.Spec.NodeName)}
}

// Inputs is Cluster.Inputs with the newest known state of the PersistentVolume.
func (o *Overlay) Inputs(va *storagev1.VolumeAttachment) attach.Inputs {
	f := o.CachedInputs(va)
	f.PersistentVolume = cmp.Or(f.PersistentVolume, o.cluster.DeletedVolume(attach.VolumeName(va)))
	return f
}

// FindCSINode returns the CSINode of a VolumeAttachment from the cache, nil if there is none. It reads the CSINode
// from the API server if the cache may be behind it: a node can get its CSINode just before its first
// VolumeAttachment, and a former holder of the lease may have noted a node ID that the cache does not show yet. What is
// attached stays where it is noted, so its CSINode makes no difference.
func (c *Cluster) FindCSINode(ctx context.Context, va *storagev1.VolumeAttachment) (node *storagev1.CSINode, read bool, err error) {
	noted := attach.NotedTarget(va).NodeID
	node = c.CSINode(va.Spec.NodeName)
	stays := va.Status.Attached && va.DeletionTimestamp == nil
	if id, ok := attach.NodeID(node, va.Spec.Attacher); node != nil && (stays || !ok || noted == "" || id == noted) {
		return node, false, nil
	}
	node, err = c.ReadCSINode(ctx, va.Spec.NodeName)
	return node, err == nil, err
}

// ReadCSINode returns a CSINode as the API server has it now, nil if there is none.
func (c *Cluster) ReadCSINode(ctx context.Context, name string) (*storagev1.CSINode, error) {
	return read(ctx, name, c.kube.StorageV1().CSINodes().Get)
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
