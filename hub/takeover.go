package hub

import (
	"context"
	"fmt"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// When a driver is taken over, the caches may not show yet what the one before has
// written last. To believe them would be to call the driver once more for what is done.

const (
	// A term that cannot begin, as the Kubernetes API does not answer, is tried again.
	beginRetryInitial = 500 * time.Millisecond
	beginRetryMax     = 10 * time.Second
)

// begin reads how far the VolumeAttachments had come when the term began, if another process may
// have worked for the driver before. The Lease's own resourceVersion says nothing of that: leases
// may be kept in an etcd of their own. It blocks until that is read, and reports false if ctx ends
// or the lease is lost before. An error is a fault of this program: a panic.
func (d *driver) begin(ctx context.Context) (began bool, err error) {
	contain(func(e error) { err = e }, func() { began = d.term.Continues() || d.readBeginning(ctx) })
	return began && err == nil, err
}

func (d *driver) readBeginning(ctx context.Context) bool {
	defer d.condition.wait("", time.Now())
	for delay := beginRetryInitial; ; delay = min(2*delay, beginRetryMax) {
		version, err := d.cluster.ReadAttachmentsVersion(ctx)
		if err == nil {
			d.began = version
			return true
		}
		d.condition.wait(fmt.Sprintf("the lease is held, and work cannot begin: %v", err), time.Now())
		klog.FromContext(ctx).V(2).Info("Cannot begin to work for the driver, will try again", "in", delay, "err", err)
		select {
		case <-ctx.Done():
			return false
		case <-d.term.Lost():
			return false
		case <-time.After(delay):
		}
	}
}

// isFromBeforeTerm reports whether a state of a VolumeAttachment is from before this term, so that
// whoever had the lease then may have written a later one.
func (d *driver) isFromBeforeTerm(va *storagev1.VolumeAttachment) bool {
	if d.began == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(va.ResourceVersion, d.began)
	return err == nil && order <= 0
}

// staleCachePause is how long a PersistentVolume keeps its finalizer before it is looked at again
// whether the cache has caught up. An API server tells a watch about once a minute how far
// that has come.
const staleCachePause = time.Second

// knowsAll reports whether the cache has every VolumeAttachment that whoever had the lease
// before may have worked on: a PersistentVolume that none of those in the cache names may be
// attached by one that it does not have yet.
func (d *driver) knowsAll() (bool, error) {
	if d.began == "" || d.cacheIsNew.Load() {
		return true, nil
	}
	order, err := resourceversion.CompareResourceVersion(d.cluster.AttachmentsVersion(), d.began)
	if err != nil || order < 0 {
		return false, err
	}
	d.cacheIsNew.Store(true)
	return true, nil
}

// catchUp returns a VolumeAttachment as it is when it is worked on for the first time in
// a term, nil if it is gone. What has changed since the term began costs no request.
func (d *driver) catchUp(ctx context.Context, e *volume.Entry, va *storagev1.VolumeAttachment) (*storagev1.VolumeAttachment, error) {
	if e.Retries.ReadAnew == va.UID || !d.isFromBeforeTerm(va) {
		return va, nil
	}
	now, err := d.cluster.ReadAttachment(ctx, va.Name)
	if err != nil {
		return nil, fmt.Errorf("read volumeattachment after the takeover of the driver: %w", err)
	}
	if now == nil || now.UID != va.UID {
		d.overlay.MarkDeleted(va) // else an attach elsewhere would ask for its detach again and again
		return nil, nil
	}
	e.Retries.ReadAnew = va.UID
	workerWrites{d.overlay, d.table}.VolumeAttachmentWritten(now)
	return now, nil
}

// readOthers reads those other VolumeAttachments of a volume anew that the cache has from before this
// term: whoever had the lease then may have attached them, and their deletions may not be in the
// cache yet. A detach that is found goes before an attach.
func (d *driver) readOthers(ctx context.Context, va *storagev1.VolumeAttachment) {
	for _, other := range d.cluster.AttachmentsOfVolume(attach.VolumeName(va)) { // none of an inline volume
		if other.Name == va.Name || other.Spec.Attacher != d.name {
			continue
		}
		if known := d.overlay.Newest(other); d.isFromBeforeTerm(known) {
			now, err := d.cluster.ReadAttachment(ctx, other.Name)
			if err == nil && now != nil && now.UID == other.UID {
				d.overlay.VolumeAttachmentWritten(now)
			}
		}
		newest := d.overlay.Attachment(other.Name)
		if newest == nil {
			continue
		}
		key := volume.ClaimKey(other.Name)
		if op, l := d.wantedOf(d.decider(), newest); op == attach.Detaching {
			if e, ok := d.table.Look(key); !ok || e.Lane != l {
				d.table.Add(key, l, d.placeOf(newest, op))
			}
		}
	}
}
