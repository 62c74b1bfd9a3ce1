package hub

import (
	"cmp"
	"fmt"
	"slices"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// backfill adds items for all work that the caches show. The route must be open before, so that no change is
// missed.
func (l *leader) backfill() {
	decider := l.decider()
	// Unowned publications come first: they go before an attach elsewhere.
	l.findMissing()
	l.confirm()
	l.callsSeen.Add(1) // any may
	due := l.dueAttachments(decider)
	finished := 0
	for _, va := range due {
		op, lane := l.wantedOf(decider, va)
		if op == attach.Detaching && va.DeletionTimestamp == nil {
			finished++
		}
		l.queue.Renew(queue.ClaimKey(va.Name), lane, l.placeOf(va, op))
	}
	if l.noAttach.Swap(decider.NoAttach) != decider.NoAttach && finished > 0 {
		l.reportNoAttach(finished)
	}
	for _, pv := range l.cluster.ReleasableVolumes(l.name) {
		l.queue.Add(queue.FinalizerKey(pv.Name), queue.FinalizerLane, queue.Place{})
	}
}

// dueAttachments returns the VolumeAttachments with work to do, the longest asked for first: the attaches to a full node go in the
// order in which they are added.
func (l *leader) dueAttachments(decider attach.Driver) []*storagev1.VolumeAttachment {
	due := slices.DeleteFunc(l.overlay.AttachmentsOfDriver(l.name), func(va *storagev1.VolumeAttachment) bool {
		op, _ := l.wantedOf(decider, va)
		return op == attach.Idle && !decider.HasStaleError(va)
	})
	slices.SortStableFunc(due, func(a, b *storagev1.VolumeAttachment) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	return due
}

// reportNoAttach reports that attachRequired became false while volumes are attached: that may be a mistake.
func (l *leader) reportNoAttach(volumes int) {
	text := "attachRequired is now false: detaching 1 volume"
	if volumes > 1 {
		text = fmt.Sprintf("attachRequired is now false: detaching %d volumes", volumes)
	}
	l.logger.Info(text)
	if object := l.cluster.CSIDriver(l.name); object != nil { // it may be gone by now
		l.warn(object, noAttach, text)
	}
}

// confirm makes this process responsible for all unowned publications. It ends a publication first if another
// process has attached the single-node volume elsewhere since.
func (l *leader) confirm() {
	for _, u := range l.table.UnownedAll() {
		since := cmp.Or(u.Unconfirmed, u.Gap)
		if since.IsZero() || u.Nodes != attach.SingleNode {
			continue
		}
		for _, va := range l.cluster.AttachmentsOfHandle(l.name, u.Target.VolumeHandle) {
			noted := attach.NotedTarget(va).NodeID // "": it is not sure that it is attached, nor where
			if va.Status.Attached && va.CreationTimestamp.After(since) && noted != "" && noted != u.Target.NodeID {
				l.table.Resolve(u.Target)
			}
		}
	}
	l.table.Confirm()
}

// findMissing ends the claims whose objects were deleted while no route was open, and returns their number.
func (l *leader) findMissing() int {
	missing := 0
	for _, c := range l.table.Claims() {
		if l.overlay.Attachment(c.Name) == nil && l.table.ReadGone(c.Identity, false) {
			missing++
		}
	}
	return missing
}

// placeOf returns the place of the call for an operation as the caches show it. A worker that has read the
// objects may find another place.
func (l *leader) placeOf(va *storagev1.VolumeAttachment, op attach.Operation) queue.Place {
	noted := attach.NotedTarget(va)
	p := queue.Place{Node: va.Spec.NodeName}
	p.Target.VolumeHandle = noted.VolumeHandle
	if name := attach.VolumeName(va); name == "" {
		if handle := attach.HandleOf(attach.Inputs{VolumeAttachment: va}); handle != "" {
			p.Target.VolumeHandle = handle
		}
	} else if v := l.cluster.VolumeOrDeleted(name); v != nil {
		if op == attach.Attaching || noted.VolumeHandle == "" {
			p.Target.VolumeHandle = v.Handle
		}
		p.Shared = v.Nodes == attach.MultiNode && v.Handle == p.Target.VolumeHandle
	}
	p.Target.NodeID = noted.NodeID
	if id, ok := attach.NodeID(l.cluster.CSINode(va.Spec.NodeName), l.name); ok {
		p.Target.NodeID = id
	}
	p.Noted = noted == p.Target && (va.Status.Attached || attach.HasFinalizer(va.Finalizers, l.finalizer)) && !saysNodeFull(va.Status.AttachError)
	return p
}

// lookAgain implements listener.
func (l *leader) lookAgain() { l.backfill() }

// retryNow implements listener.
func (l *leader) retryNow(name string) { l.queue.RetryNow(queue.ClaimKey(name)) }

// onAttachment implements listener.
func (l *leader) onAttachment(before, va *storagev1.VolumeAttachment) {
	l.checkWriter(before, va)
	l.overlay.VolumeAttachmentChanged(va)
	decider := l.decider()
	if decider.RecordsCall(va) {
		l.callsSeen.Add(1)
	}
	if va = l.overlay.Attachment(va.Name); va == nil {
		return // it is gone by now, and the event of its deletion follows
	}
	known, unchanged := l.table.Known(va)
	op := decider.RequiredOperation(va)
	if unchanged || !known && op == attach.Idle {
		return
	}
	l.queue.Add(queue.ClaimKey(va.Name), queue.LaneOf(op), l.placeOf(va, op))
}

// onAttachmentGone implements listener.
func (l *leader) onAttachmentGone(va *storagev1.VolumeAttachment) {
	l.overlay.VolumeAttachmentDeleted(va)
	var last *attach.Record
	if (!l.isFromBeforeTerm(va) || cutShort(va, l.finalizer)) && !l.table.WasReleased(va.UID) {
		if r, ok := l.decider().LastRecorded(l.overlay.Inputs(va)); ok {
			last = &r
		}
	}
	if last == nil && l.detachedElsewhere(va) {
		l.queue.DetachedFrom(va.Spec.NodeName)
	}
	l.table.Gone(volume.IdentityOf(va), last)
}

// cutShort reports whether the last state of a VolumeAttachment shows that it was deleted before its volume was
// detached: its deletion raced with the write of the finalizer (kubernetes/kubernetes issue 124749), or a
// client removed the finalizer while the volume was attached.
func cutShort(va *storagev1.VolumeAttachment, finalizer string) bool {
	return va.DeletionTimestamp == nil && (attach.HasFinalizer(va.Finalizers, finalizer) || va.Status.Attached)
}

// onVolume takes a PersistentVolume that has or had the driver's finalizer, when it was added or has
// changed, or when a VolumeAttachment that named it is gone.
func (l *leader) onVolume(v *attach.Volume) {
	l.overlay.PersistentVolumeChanged(v)
	if attach.HasFinalizer(v.Finalizers, l.finalizer) && v.Releasable(l.name) {
		l.queue.Add(queue.FinalizerKey(v.Name), queue.FinalizerLane, queue.Place{})
	}
}
