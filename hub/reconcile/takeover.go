package reconcile

import (
	"context"
	"fmt"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

// After a takeover the caches may not show the last writes of the former holder of the lease yet. A leader that
// relied on the caches alone would call the driver again for operations that are done.

// isFromBeforeTerm reports whether a state of a VolumeAttachment is from before this term, so that the former
// holder of the lease may have written a later state. It compares resourceVersions with the Lease, which costs
// no request: both must be in one etcd.
func (w *Worker) isFromBeforeTerm(va *storagev1.VolumeAttachment) bool {
	order, err := resourceversion.CompareResourceVersion(va.ResourceVersion, w.term.ResourceVersion()) // an error if there is no Lease
	return err == nil && order < 0
}

// staleCachePause is the pause before the next check whether the cache has caught up. An API server sends a
// bookmark to a watch about once a minute.
const staleCachePause = time.Second

// knowsAll reports whether the cache has every VolumeAttachment that a former holder of the lease may have
// worked on: a VolumeAttachment that the cache does not have yet may have the volume attached. It reads the
// resourceVersion of the collection once in a term. It does not use the resourceVersion of the Lease: if leases
// are in an etcd of their own after all, a finalizer would be removed too early.
func (w *Worker) knowsAll(ctx context.Context) (bool, error) {
	if w.term.Continues() {
		return true, nil
	}
	began := w.collection.Load()
	if began == nil {
		version, err := w.Cluster.ReadAttachmentsVersion(ctx)
		if err != nil {
			return false, err
		}
		began = &version
		w.collection.Store(began) // the answer of another worker is as good
	}
	order, err := resourceversion.CompareResourceVersion(w.Cluster.AttachmentsVersion(), *began)
	return err == nil && order >= 0, err
}

// catchUp returns the present state of a VolumeAttachment, nil if it is gone. It reads the object from the API
// server only for the first run in a term, and only if the cached state is from before the term; and after a write whose answer
// was lost.
func (w *Worker) catchUp(ctx context.Context, e *queue.Item, va *storagev1.VolumeAttachment) (*storagev1.VolumeAttachment, error) {
	why := "after the takeover of the driver"
	switch {
	case w.Table.Look(va.Name, va.UID).Unsure:
		why = "after a write that had no answer"
	case e.Retries.ReadAnew == va.UID, !w.isFromBeforeTerm(va):
		return va, nil
	}
	now, err := w.Cluster.ReadAttachment(ctx, va.Name)
	if err != nil {
		return nil, fmt.Errorf("read volumeattachment %s: %w", why, err)
	}
	if now == nil || now.UID != va.UID {
		w.Overlay.MarkDeleted(va) // otherwise an attach elsewhere would add the item of its detach again and again
		return nil, nil
	}
	e.Retries.ReadAnew = va.UID
	workerWrites{w.Overlay, w.Table}.VolumeAttachmentWritten(now)
	return now, nil
}

// readOthers reads the other VolumeAttachments of a volume again whose cached state is from before this term: the
// former holder of the lease may have attached them, and the cache may not show their deletion yet. It adds the
// items of the detaches that it finds, which go before an attach.
func (w *Worker) readOthers(ctx context.Context, va *storagev1.VolumeAttachment) {
	for _, other := range w.Cluster.AttachmentsOfVolume(attach.VolumeName(va)) { // none of an inline volume
		if other.Name == va.Name || other.Spec.Attacher != w.Driver {
			continue
		}
		if known := w.Overlay.Newest(other); w.isFromBeforeTerm(known) {
			now, err := w.Cluster.ReadAttachment(ctx, other.Name)
			if err == nil && now != nil && now.UID == other.UID {
				w.Overlay.VolumeAttachmentWritten(now)
			}
		}
		key := queue.AttachmentKey(other.Name)
		if newest := w.Overlay.Attachment(other.Name); newest != nil {
			op, lane := w.Table.Required(w.Decider(), newest)
			if e, ok := w.Queue.Look(key); op == attach.Detaching && (!ok || e.Lane != lane) {
				w.Queue.Add(key, lane, w.destinationOf(newest, op))
			}
		}
	}
}
