package hub

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// backfill asks for all that the caches say has to be done. The route is open before, so that
// nothing falls between caches and events.
func (d *driver) backfill() {
	decider := d.decider()
	// Unowned publications come first: they go before an attach elsewhere.
	d.findMissing()
	d.confirm()
	for _, va := range d.cluster.AttachmentsOfDriver(d.name) {
		if va = d.overlay.Newest(va); decider.Wanted(va) != attach.Idle {
			op := decider.Wanted(va)
			d.table.Renew(volume.ClaimKey(va.Name), volume.LaneOf(op), d.placeOf(va, op))
		}
	}
	for _, pv := range d.cluster.ReleasableVolumes(d.finalizer) {
		if attach.Leaving(pv, d.name) {
			d.table.Add(volume.FinalizerKey(pv.Name), volume.FinalizerLane, volume.Place{})
		}
	}
}

// confirm makes the unowned publications this process' to see to, except those of single-node volumes
// that another process has attached elsewhere since.
func (d *driver) confirm() {
	for _, u := range d.table.UnownedAll() {
		since := cmp.Or(u.Unconfirmed, u.Gap)
		if since.IsZero() || u.Nodes != attach.SingleNode {
			continue
		}
		for _, va := range d.cluster.AttachmentsOfHandle(d.name, u.Target.VolumeHandle) {
			noted := attach.NotedTarget(va).NodeID // "": it is not sure that it is attached, nor where
			if va.Status.Attached && va.CreationTimestamp.After(since) && noted != "" && noted != u.Target.NodeID {
				d.table.Resolve(u.Target)
			}
		}
	}
	d.table.Confirm()
}

// findMissing ends the claims whose objects went while nobody listened, and returns how many that
// were.
func (d *driver) findMissing() int {
	missing := 0
	for _, c := range d.table.Claims() {
		if d.overlay.Attachment(c.Name) == nil && d.table.ReadGone(c.Identity, false) {
			missing++
		}
	}
	return missing
}

// placeOf returns where the driver has to be called for an operation, as far as the caches tell. A
// worker that has read the objects may find another place.
func (d *driver) placeOf(va *storagev1.VolumeAttachment, op attach.Operation) volume.Place {
	noted := attach.NotedTarget(va)
	p := volume.Place{Node: va.Spec.NodeName}
	p.Target.VolumeHandle = noted.VolumeHandle
	if name := attach.VolumeName(va); name == "" {
		if handle := attach.HandleOf(attach.Facts{VolumeAttachment: va}); handle != "" {
			p.Target.VolumeHandle = handle
		}
	} else if v := d.cluster.StoredOrDeleted(name); v != nil {
		if op == attach.Attaching || noted.VolumeHandle == "" {
			p.Target.VolumeHandle = v.Handle()
		}
		p.Shared = v.MultiNode() && v.Handle() == p.Target.VolumeHandle
	}
	p.Target.NodeID = noted.NodeID
	if id, ok := attach.NodeID(d.cluster.CSINode(va.Spec.NodeName), d.name); ok {
		p.Target.NodeID = id
	}
	return p
}

// lookAgain implements listener.
func (d *driver) lookAgain() { d.backfill() }

// retryNow implements listener.
func (d *driver) retryNow(name string) { d.table.RetryNow(volume.ClaimKey(name)) }

// onAttachment implements listener.
func (d *driver) onAttachment(before, va *storagev1.VolumeAttachment) {
	d.checkWriter(before, va)
	d.overlay.VolumeAttachmentChanged(va)
	if va = d.overlay.Attachment(va.Name); va == nil {
		return // it is gone meanwhile, and the event that says so follows
	}
	known, unchanged := d.table.Known(va)
	op := d.decider().Wanted(va)
	if unchanged || !known && op == attach.Idle {
		return
	}
	d.table.Add(volume.ClaimKey(va.Name), volume.LaneOf(op), d.placeOf(va, op))
}

// onAttachmentGone implements listener.
func (d *driver) onAttachmentGone(va *storagev1.VolumeAttachment) {
	d.overlay.VolumeAttachmentDeleted(va)
	var last *attach.Record
	if (!d.isFromBeforeTerm(va) || cutShort(va, d.finalizer)) && !d.table.WasReleased(va.UID) {
		if r, ok := d.decider().LastRecorded(d.factsOf(va)); ok {
			last = &r
		}
	}
	d.table.Gone(volume.IdentityOf(va), last)
}

// cutShort reports whether the last state of a VolumeAttachment shows that it vanished without
// having been deleted in the regular way: its finalizer came at the same time, and nobody has
// detached it (kubernetes/kubernetes issue 124749), or somebody took the finalizer while it was
// attached.
func cutShort(va *storagev1.VolumeAttachment, finalizer string) bool {
	return va.DeletionTimestamp == nil && (attach.HasFinalizer(va.Finalizers, finalizer) || va.Status.Attached)
}

// onVolume takes a PersistentVolume that has or had the driver's finalizer and was added
// or has changed, or that a VolumeAttachment has let go of.
func (d *driver) onVolume(pv *corev1.PersistentVolume) {
	d.overlay.PersistentVolumeChanged(pv)
	if attach.HasFinalizer(pv.Finalizers, d.finalizer) && attach.Leaving(pv, d.name) {
		d.table.Add(volume.FinalizerKey(pv.Name), volume.FinalizerLane, volume.Place{})
	}
}
