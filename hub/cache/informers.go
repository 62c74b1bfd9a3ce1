package cache

import (
	"context"
	"hash/maphash"
	"strconv"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// Indexes of VolumeAttachments, by the value that is looked up.
const (
	byDriver = "driver"           // spec.attacher
	byVolume = "persistentVolume" // volumeBucket of the name
	byNode   = "node"
	byNodeID = "nodeID" // the noted one
)

// byLostFinalizer is the index of PersistentVolumes by the finalizers that perhaps must be removed.
const byLostFinalizer = "lost finalizer"

// newInformer returns the cache of all objects of a resource, each as Transform returns it. It does not resync:
// that would repeat every event for every driver, and after a broken watch the informer lists all objects
// anyway.
func newInformer(client rest.Interface, resource string, example runtime.Object) toolscache.SharedIndexInformer {
	requests := toolscache.NewListWatchFromClient(client, resource, metav1.NamespaceAll, fields.Everything())
	if _, ok := example.(*storagev1.VolumeAttachment); ok {
		requests.ListWithContextFunc = inPages(requests.ListWithContextFunc)
	}
	informer := toolscache.NewSharedIndexInformerWithOptions(requests, example, toolscache.SharedIndexInformerOptions{Indexers: toolscache.Indexers{}})
	_ = informer.SetTransform(Transform) // fails only once the informer has started
	return informer
}

// listPage bounds the VolumeAttachments of one answer to a list.
const listPage = 100

// inPages lists VolumeAttachments in pages, and trims each page. Each may have 256 KiB of attachmentMetadata, and an API
// server that cannot stream a list answers a list of resourceVersion 0 with all of them at once.
func inPages(list toolscache.ListWithContextFunc) toolscache.ListWithContextFunc {
	return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		if o.Limit > listPage { // 0: all that is left, after a token has expired
			o.Limit = listPage
			if o.ResourceVersion == "0" {
				o.ResourceVersion = ""
			}
		}
		listed, err := list(ctx, o)
		if attachments, ok := listed.(*storagev1.VolumeAttachmentList); ok && err == nil {
			for i := range attachments.Items {
				trimVolumeAttachment(&attachments.Items[i])
			}
		}
		return listed, err
	}
}

// handleDriverWatchError accepts that the hub may not read CSIDriver objects: csi-attacher's role has no rule
// for them, and a hub that replaces one sidecar may have only that role.
func (c *Cluster) handleDriverWatchError(ctx context.Context, r *toolscache.Reflector, err error) {
	if !apierrors.IsForbidden(err) {
		toolscache.DefaultWatchErrorHandler(ctx, r, err)
		return
	}
	if !c.driversForbidden.Swap(true) {
		klog.FromContext(ctx).Info("Reading CSIDriver objects is forbidden, attachRequired counts as true for every driver", "err", err)
	}
}

func attachmentIndexers() toolscache.Indexers {
	return toolscache.Indexers{
		byDriver: attachmentIndex(func(va *storagev1.VolumeAttachment) string { return va.Spec.Attacher }),
		byVolume: attachmentIndex(func(va *storagev1.VolumeAttachment) string { return volumeBucket(attach.VolumeName(va)) }),
		byNode:   attachmentIndex(func(va *storagev1.VolumeAttachment) string { return va.Spec.NodeName }),
		byNodeID: attachmentIndex(func(va *storagev1.VolumeAttachment) string { return attach.NotedTarget(va).NodeID }),
	}
}

// volumeBuckets is the number of values of byVolume.
const volumeBuckets = 1 << 14

var bucketSeed = maphash.MakeSeed()

// volumeBucket returns the value under which VolumeAttachments of a PersistentVolume are indexed, "" for none. Many
// PersistentVolumes share a value: an index keeps a set for each value, and a set takes more memory than its only name.
func volumeBucket(name string) string {
	if name == "" {
		return ""
	}
	return strconv.FormatUint(maphash.String(bucketSeed, name)%volumeBuckets, 36)
}

// attachmentIndex indexes VolumeAttachments by a value. VolumeAttachments whose value is "" are not in the index.
func attachmentIndex(value func(*storagev1.VolumeAttachment) string) toolscache.IndexFunc {
	return func(obj any) ([]string, error) {
		if v := value(obj.(*storagev1.VolumeAttachment)); v != "" {
			return []string{v}, nil
		}
		return nil, nil
	}
}

// lostFinalizerIndex indexes, by finalizer, the PersistentVolumes whose finalizers of attachers perhaps must be
// removed. Nearly all PersistentVolumes keep their finalizers, and are not in the index.
func lostFinalizerIndex(obj any) ([]string, error) {
	if v := obj.(*attach.Volume); v.Deleted != nil || v.MigratedTo != nil {
		return v.Finalizers, nil
	}
	return nil, nil
}
