package reconcile

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// LookAtAll implements Listener: it adds items for all work that the caches show. The route must be open before, so that no change is
// missed.
func (w *Worker) LookAtAll() {
	w.findMissing()
	w.confirm()
	w.callsSeen.Add(1) // any may
	decider := w.Decider()
	volumes := w.eachDue(decider, w.Queue.AddAndRetry)
	if w.noAttach.Swap(decider.NoAttach) != decider.NoAttach && volumes > 0 {
		w.reportNoAttach(volumes)
	}
}

// Resync adds the items that are missing for the objects in the caches. Existing items keep their backoff.
func (w *Worker) Resync() {
	missed := w.findMissing()
	w.eachDue(w.Decider(), func(key queue.Key, lane queue.Lane, dest queue.Destination) {
		if !w.Queue.Has(key) {
			missed++
			w.Queue.Add(key, lane, dest)
		}
	})
	if missed > 0 {
		w.Logger.Info("Resync found operations that no watch event had started", "operations", missed)
	}
}

// eachDue calls enqueue for each dangling publication, and for each object in the caches that needs work. The oldest
// VolumeAttachment comes first: the attaches to a full node go in the order in which they are added. It returns how many volumes are to
// be detached only because attachRequired is false.
func (w *Worker) eachDue(decider attach.Driver, enqueue func(queue.Key, queue.Lane, queue.Destination)) (unrequired int) {
	for _, u := range w.Table.AllDangling() { // first: they go before an attach elsewhere
		enqueue(u.Key(), queue.DetachLane, u.Destination())
	}
	due := slices.DeleteFunc(w.Overlay.AttachmentsOfDriver(w.Driver), func(va *storagev1.VolumeAttachment) bool { // else all were sorted
		op, _ := w.Table.Required(decider, va)
		return op == attach.Idle && !decider.HasStaleError(va)
	})
	slices.SortStableFunc(due, func(a, b *storagev1.VolumeAttachment) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	for _, va := range due {
		op, lane := w.Table.Required(decider, va)
		if op == attach.Detaching && va.DeletionTimestamp == nil {
			unrequired++
		}
		enqueue(queue.AttachmentKey(va.Name), lane, w.destinationOf(va, op))
	}
	for _, pv := range w.Cluster.VolumesLosingFinalizer(w.Driver) {
		if !w.Cluster.VolumeInUse(pv.Name) {
			enqueue(queue.FinalizerKey(pv.Name), queue.FinalizerLane, queue.Destination{})
		}
	}
	return unrequired
}

// reportNoAttach reports that attachRequired became false while volumes are attached: that may be a mistake.
func (w *Worker) reportNoAttach(volumes int) {
	text := fmt.Sprintf("attachRequired is now false, volumes to detach: %d", volumes)
	w.Logger.Info(text)
	if object := w.Cluster.CSIDriver(w.Driver); object != nil { // it may be gone by now
		w.Warn(object, noAttach, text)
	}
}

// confirm makes this process responsible for all dangling publications. It ends a publication first if another
// process has attached the single-node volume elsewhere since. If the caches do not show that attach yet, the driver is called once
// more for the old target. By the CSI spec, that takes the volume from that node alone.
func (w *Worker) confirm() {
	for _, u := range w.Table.AllDangling() {
		since := cmp.Or(u.Unconfirmed, u.Gap)
		if since.IsZero() || u.Nodes != attach.SingleNode { // no other process has attached it elsewhere since
			continue
		}
		for _, va := range w.Cluster.AttachmentsOfHandle(w.Driver, u.Target.VolumeHandle) {
			noted := attach.NotedTarget(va).NodeID // "": it is not sure that it is attached, nor where
			if va.Status.Attached && va.CreationTimestamp.After(since) && noted != "" && noted != u.Target.NodeID {
				w.Table.Resolve(u)
			}
		}
	}
	w.Table.Confirm()
}

// findMissing ends the volume.Attachments whose objects were deleted while no route was open, and returns their number.
func (w *Worker) findMissing() int {
	missing := 0
	for _, c := range w.Table.Attachments() {
		if va := w.Overlay.Attachment(c.Name); (va == nil || va.UID != c.UID) && w.Table.Missing(c.Name, c.UID) {
			missing++
		}
	}
	return missing
}

// destinationOf returns the destination of the call for an operation as the caches show it. A worker that has read the
// objects may find another one.
func (w *Worker) destinationOf(va *storagev1.VolumeAttachment, op attach.Operation) queue.Destination {
	noted := attach.NotedTarget(va)
	p := queue.Destination{Node: va.Spec.NodeName, Target: attach.Target{VolumeHandle: w.Cluster.VolumeHandle(va), NodeID: noted.NodeID}}
	if v := w.Cluster.VolumeOrDeleted(attach.VolumeName(va)); v != nil {
		if op == attach.Attaching {
			p.Target.VolumeHandle = v.Handle
		}
		p.Shared = v.Nodes == attach.MultiNode && v.Handle == p.Target.VolumeHandle
	}
	if id, ok := attach.NodeID(w.Cluster.CSINode(va.Spec.NodeName), w.Driver); ok {
		p.Target.NodeID = id
	}
	p.Noted = noted == p.Target && (va.Status.Attached || attach.HasFinalizer(va.Finalizers, w.Table.Finalizer)) && !saysNodeFull(va.Status.AttachError)
	return p
}

// Look implements Listener.
func (w *Worker) Look(name string) { w.Queue.RetryNow(queue.AttachmentKey(name)) }

// AttachmentChanged implements Listener.
func (w *Worker) AttachmentChanged(before, va *storagev1.VolumeAttachment) {
	if va == nil {
		w.attachmentGone(before)
		return
	}
	w.checkWriter(before, va)
	w.Overlay.VolumeAttachmentChanged(va)
	decider := w.Decider()
	if decider.RecordsCall(va) {
		w.callsSeen.Add(1)
	}
	if va = w.Overlay.Attachment(va.Name); va == nil {
		return // it is gone by now, and the event of its deletion follows
	}
	op := decider.RequiredOperation(va)
	if w.Table.IsUnchanged(va) || op == attach.Idle && w.Table.Look(va.Name, va.UID).Name == "" {
		return
	}
	w.Queue.Add(queue.AttachmentKey(va.Name), queue.LaneOf(op), w.destinationOf(va, op))
}

// attachmentGone takes the last state of a VolumeAttachment that was deleted.
func (w *Worker) attachmentGone(va *storagev1.VolumeAttachment) {
	w.Overlay.VolumeAttachmentDeleted(va)
	var last *attach.Record
	if r, ok := w.Decider().LastRecorded(w.Overlay.Inputs(va)); ok && (!w.isFromBeforeTerm(va) || cutShort(va, w.Table.Finalizer)) {
		last = &r
	}
	w.Table.Gone(volume.IdentityOf(va), last, va.DeletionTimestamp != nil && attach.NotedTarget(va).NodeID != "")
}

// ObserveDeletion takes the last state of a deleted VolumeAttachment of a driver that this process does not
// work for, and remembers the volume if it may still be attached. It does not block.
func (m Memory) ObserveDeletion(decider attach.Driver, last attach.Inputs) {
	va := last.VolumeAttachment
	if record, ok := decider.LastRecorded(last); ok && cutShort(va, m.Table.Finalizer) {
		m.Table.ObserveDeletion(volume.IdentityOf(va), record, time.Now())
	} else if ok { // the holder of the lease has detached the volume
		m.Table.ObserveDetach(record.Target, va.UID)
	}
}

// cutShort reports whether the last state of a VolumeAttachment shows that it was deleted before its volume was
// detached: its deletion raced with the write of the finalizer (kubernetes/kubernetes issue 124749), or a
// client removed the finalizer while the volume was attached.
func cutShort(va *storagev1.VolumeAttachment, finalizer string) bool {
	return va.DeletionTimestamp == nil && (attach.HasFinalizer(va.Finalizers, finalizer) || va.Status.Attached)
}

// volumeChanged takes a PersistentVolume that has or had the driver's finalizer, when it was added or has
// changed, or when a VolumeAttachment that named it is gone.
func (w *Worker) volumeChanged(v *attach.Volume) {
	w.Overlay.PersistentVolumeChanged(v)
	if v.LosesFinalizer(w.Driver) {
		w.Queue.Add(queue.FinalizerKey(v.Name), queue.FinalizerLane, queue.Destination{})
	}
}
