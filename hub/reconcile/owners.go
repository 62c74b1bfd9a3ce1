package reconcile

import (
	"context"
	"fmt"
	"slices"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// readFor bounds the tries to read a VolumeAttachment from an API server that cannot answer.
const readFor = 2 * time.Second

// owners returns whether a VolumeAttachment other than the former owner owns a volume at a target. It reads each candidate from
// the API server: the cache may not show its creation or deletion yet. It also reads
// a new VolumeAttachment with the name of the former owner: kube-controller-manager makes names of volume,
// driver and node, so they are used again. An error comes with Unclear. It blocks until the API server has answered.
//
// exists: the former owner's object still exists and is being detached, so no other object has its name. Then it reads only
// VolumeAttachments that surely are about the volume. Otherwise a single
// VolumeAttachment of an unknown volume would keep all volumes from being detached.
func (w *Worker) owners(ctx context.Context, formerOwner volume.Identity, target attach.Target, exists bool) (volume.Ownership, error) {
	names := w.candidates(formerOwner, target, exists)
	if formerOwner.Name != "" && !exists { // else only the driver has reported the publication
		names = slices.Insert(names, 0, formerOwner.Name)
	}
	found, failed := volume.NoOwner, error(nil)
	for _, name := range names {
		va, err := w.read(ctx, name)
		if err != nil {
			found, failed = max(found, volume.Unclear), fmt.Errorf("read volumeattachment %q: %w", name, err)
			continue
		}
		if found = max(found, w.ownership(va, formerOwner, target)); found == volume.Owned {
			w.Overlay.VolumeAttachmentWritten(va)
			return found, nil
		}
	}
	return found, failed
}

// ownership returns whether one VolumeAttachment, nil if it is gone, owns the volume at a target. The former owner does if it is
// attached there again, unless it is about to be attached elsewhere.
func (w *Worker) ownership(va *storagev1.VolumeAttachment, formerOwner volume.Identity, target attach.Target) volume.Ownership {
	if va == nil || va.DeletionTimestamp != nil || va.Spec.Attacher != w.Driver {
		return volume.NoOwner
	}
	may, surely := w.Decider().NamesTarget(w.Overlay.Inputs(va), target)
	if va.UID == formerOwner.UID {
		may = va.Status.Attached && attach.NotedTarget(va) == target
		surely = !slices.Contains(w.Table.Look(va.Name, va.UID).Disowned, target)
	}
	guarded := attach.HasFinalizer(va.Finalizers, w.Table.Finalizer)
	switch {
	case !may:
		return volume.NoOwner
	case surely && guarded:
		return volume.Owned
	case guarded || va.Status.Attached:
		return volume.Unclear
	}
	return volume.Requested
}

// read returns a VolumeAttachment as the API server has it now, nil if there is none. While the API server
// cannot answer, it tries again for readFor.
func (w *Worker) read(ctx context.Context, name string) (*storagev1.VolumeAttachment, error) {
	ctx, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	for {
		va, err := w.Cluster.ReadAttachment(ctx, name)
		if err == nil || ctx.Err() != nil || !attach.NotReady(err) {
			return va, err
		}
		Sleep(ctx, fencePause)
	}
}

// candidates returns the names of other VolumeAttachments that may own a volume at a target. It looks at
// those whose note has the node ID (another node may have it by now), at those that name the same
// PersistentVolume and, unless they must be surely about the volume, at those on the node and of the handle.
func (w *Worker) candidates(formerOwner volume.Identity, target attach.Target, surely bool) []string {
	some := slices.Concat(w.Cluster.AttachmentsAtNodeID(target.NodeID), w.Cluster.AttachmentsOfVolume(formerOwner.PersistentVolume))
	if !surely {
		some = slices.Concat(w.Cluster.AttachmentsOnNode(formerOwner.Node), w.Cluster.AttachmentsOfHandle(w.Driver, target.VolumeHandle), some)
	}
	var names []string
	for _, va := range some {
		if va.Name == formerOwner.Name || va.Spec.Attacher != w.Driver || slices.Contains(names, va.Name) {
			continue
		}
		va = w.Overlay.Newest(va)
		inputs := w.Overlay.Inputs(va)
		may, _ := w.Decider().NamesTarget(inputs, target)
		isTouched := va.Status.Attached || attach.HasFinalizer(va.Finalizers, w.Table.Finalizer) || va.Spec.Source.InlineVolumeSpec != nil
		// It waits for another PersistentVolume, and has no volume attached yet.
		waits := inputs.PersistentVolume == nil && !isTouched && attach.VolumeName(va) != formerOwner.PersistentVolume
		if may && !waits && va.DeletionTimestamp == nil && (!surely || attach.HandleOf(inputs) == target.VolumeHandle) {
			names = append(names, va.Name)
		}
	}
	return names
}
