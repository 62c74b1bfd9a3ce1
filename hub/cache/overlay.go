package cache

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const (
	// overlayTTL bounds how long a write is believed over a cache that does not show
	// it: far longer than a watch lags.
	overlayTTL = 5 * time.Minute
	// overlaySize is how many writes of one driver a watch may lag behind.
	overlaySize = 4096
)

// Overlay shows one driver the caches as they will be once its own writes have
// come back. A worker that believed a cache older than its last write would write,
// or call the driver, a second time.
type Overlay struct {
	attachments toolscache.MutationCache
	volumes     toolscache.MutationCache
	cluster     *Cluster

	mu sync.Mutex
	// ended are the VolumeAttachments that a write of this process has ended, by UID, until
	// the watch tells: the answer to such a write is no newer state that could be laid
	// over the toolscache.
	deleted map[types.UID]bool // guarded by mu
}

func NewOverlay(logger klog.Logger, c *Cluster) *Overlay {
	over := func(cached toolscache.Store) toolscache.MutationCache {
		return toolscache.NewIntegerResourceVersionMutationCacheWithOptions(logger, cached,
			toolscache.MutationCacheOptions{TTL: overlayTTL, MaxCacheSize: overlaySize})
	}
	return &Overlay{attachments: over(c.attachments.GetStore()), volumes: over(volumeStore{c.volumes.GetStore()}),
		cluster: c, deleted: map[types.UID]bool{}}
}

// VolumeAttachmentWritten takes an object that the API server returned to a write.
func (o *Overlay) VolumeAttachmentWritten(va *storagev1.VolumeAttachment) {
	trimVolumeAttachment(va)
	if va.DeletionTimestamp != nil && len(va.Finalizers) == 0 {
		o.MarkDeleted(va)
	}
	o.attachments.Mutation(va)
}

// End notes that a VolumeAttachment is gone, unless the cache knows already: nobody would
// tell any more. It reports whether the watch is still to tell.
func (o *Overlay) MarkDeleted(va *storagev1.VolumeAttachment) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if cached := o.cluster.Attachment(va.Name); cached != nil && cached.UID == va.UID {
		o.deleted[va.UID] = true
	}
	return o.deleted[va.UID]
}

// AttachmentChanged takes a state of a VolumeAttachment that the watch has told of.
func (o *Overlay) VolumeAttachmentChanged(va *storagev1.VolumeAttachment) {
	o.attachments.OnAddOrUpdate(va)
}

// VolumeChanged takes a state of a PersistentVolume that the watch has told of, also the last one: a
// write that it has seen is forgotten.
func (o *Overlay) PersistentVolumeChanged(pv *corev1.PersistentVolume) { o.volumes.OnAddOrUpdate(pv) }

// AttachmentGone takes the last state of a VolumeAttachment that is gone.
func (o *Overlay) VolumeAttachmentDeleted(va *storagev1.VolumeAttachment) {
	o.attachments.OnDelete(va)
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.deleted, va.UID)
}

// PersistentVolumeWritten is VolumeAttachmentWritten for a PersistentVolume.
func (o *Overlay) PersistentVolumeWritten(pv *corev1.PersistentVolume) {
	trimPersistentVolume(pv)
	o.volumes.Mutation(pv)
}

// Attachment returns the newest known state of a VolumeAttachment, nil if it is gone.
func (o *Overlay) Attachment(name string) *storagev1.VolumeAttachment {
	obj, ok, err := o.attachments.GetByKey(name)
	if err != nil || !ok {
		return nil
	}
	va := obj.(*storagev1.VolumeAttachment)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.deleted[va.UID] {
		return nil
	}
	return va
}

// Newest returns the newer of an object from a cache and what was written.
func (o *Overlay) Newest(va *storagev1.VolumeAttachment) *storagev1.VolumeAttachment {
	if known := o.Attachment(va.Name); known != nil {
		return known
	}
	return va
}

// Volume returns the newest known state of a PersistentVolume, nil if it is gone.
func (o *Overlay) Volume(name string) *corev1.PersistentVolume {
	obj, ok, err := o.volumes.GetByKey(name)
	if err != nil || !ok {
		return nil
	}
	return obj.(*corev1.PersistentVolume)
}
