package cache

import (
	"cmp"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

const (
	// overlayTTL bounds how long a write is laid over a cache that does not show it: far longer than a watch
	// lags.
	overlayTTL = 5 * time.Minute
	// overlaySize is the number of writes of one driver by which a watch may lag.
	overlaySize = 4096
)

// Overlay shows one driver the caches with its own writes laid over them, until the watch reports
// those writes. A worker that acted on a cache older than its own last write would write, or call
// the driver, a second time.
//
// Its methods do not block and are safe for concurrent use. It implements attach.Written. The VolumeAttachments
// that it returns must not be changed.
type Overlay struct {
	attachments toolscache.MutationCache
	volumes     toolscache.MutationCache
	cluster     *Cluster

	mu sync.Mutex
	// deleted are the UIDs of VolumeAttachments that are gone while the cache still has them.
	// A deletion has no newer state that could be laid over the cache.
	deleted map[types.UID]bool // guarded by mu
}

// NewOverlay returns an Overlay without writes.
func NewOverlay(logger klog.Logger, c *Cluster) *Overlay {
	over := func(cached toolscache.Store) toolscache.MutationCache {
		return toolscache.NewIntegerResourceVersionMutationCacheWithOptions(logger, cached,
			toolscache.MutationCacheOptions{TTL: overlayTTL, MaxCacheSize: overlaySize})
	}
	return &Overlay{attachments: over(c.Attachments.GetStore()), volumes: over(c.Volumes.GetStore()),
		cluster: c, deleted: map[types.UID]bool{}}
}

// VolumeAttachmentWritten takes a VolumeAttachment that the API server returned to a write, or to a
// read. It trims va, which belongs to the Overlay from then on.
func (o *Overlay) VolumeAttachmentWritten(va *storagev1.VolumeAttachment) {
	trimVolumeAttachment(va)
	if va.DeletionTimestamp != nil && len(va.Finalizers) == 0 {
		o.MarkDeleted(va)
	}
	o.attachments.Mutation(va)
}

// MarkDeleted marks a VolumeAttachment as deleted. It does nothing if the cache has dropped the object already:
// no event would remove the mark then.
func (o *Overlay) MarkDeleted(va *storagev1.VolumeAttachment) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if cached := o.cluster.Attachment(va.Name); cached != nil && cached.UID == va.UID {
		o.deleted[va.UID] = true
	}
}

// VolumeAttachmentChanged takes a VolumeAttachment that the watch has reported as added or changed.
// Older writes to it are dropped.
func (o *Overlay) VolumeAttachmentChanged(va *storagev1.VolumeAttachment) {
	o.attachments.OnAddOrUpdate(va)
}

// PersistentVolumeChanged takes a PersistentVolume that the watch has reported as added, changed or
// deleted. Writes up to this state are dropped.
func (o *Overlay) PersistentVolumeChanged(v *attach.Volume) { o.volumes.OnAddOrUpdate(v) }

// VolumeAttachmentDeleted takes the last state of a VolumeAttachment whose deletion the watch has
// reported.
func (o *Overlay) VolumeAttachmentDeleted(va *storagev1.VolumeAttachment) {
	o.attachments.OnDelete(va)
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.deleted, va.UID)
}

// PersistentVolumeWritten takes a PersistentVolume that the API server returned to a write, or to a
// read.
func (o *Overlay) PersistentVolumeWritten(v *attach.Volume) { o.volumes.Mutation(v) }

// Attachment returns the newest known state of a VolumeAttachment, nil if there is none.
func (o *Overlay) Attachment(name string) *storagev1.VolumeAttachment {
	va := cached[*storagev1.VolumeAttachment](o.attachments, name)
	o.mu.Lock()
	defer o.mu.Unlock()
	if va != nil && o.deleted[va.UID] {
		return nil
	}
	return va
}

// Newest returns the newest known state of the VolumeAttachment with the name of va, or else va.
func (o *Overlay) Newest(va *storagev1.VolumeAttachment) *storagev1.VolumeAttachment {
	if known := o.Attachment(va.Name); known != nil {
		return known
	}
	return va
}

// AttachmentsOfDriver returns the newest known states of a driver's VolumeAttachments.
func (o *Overlay) AttachmentsOfDriver(driver string) []*storagev1.VolumeAttachment {
	vas := o.cluster.AttachmentsOfDriver(driver)
	for i, va := range vas {
		vas[i] = o.Newest(va)
	}
	return vas
}

// Volume returns the newest known state of a PersistentVolume, nil if there is none.
func (o *Overlay) Volume(name string) *attach.Volume {
	return cached[*attach.Volume](o.volumes, name)
}

// VolumeOrDeleted returns the newest known state of a PersistentVolume, or else its last state, nil if neither is known.
func (o *Overlay) VolumeOrDeleted(name string) *attach.Volume {
	return cmp.Or(o.Volume(name), o.cluster.DeletedVolume(name))
}
