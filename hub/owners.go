package hub

import (
	"context"
	"fmt"
	"slices"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// readFor bounds how long an API server that cannot answer is asked again for a VolumeAttachment.
const readFor = 2 * time.Second

// owners returns whether a VolumeAttachment owns an unowned publication's volume at its target, besides
// the VolumeAttachment that left it there. It also reads a new VolumeAttachment of the same name: names are
// made of volume, driver and node, and come again. It blocks until the API server has answered.
func (l *leader) owners(ctx context.Context, left volume.Identity, target attach.Target) (volume.Ownership, error) {
	some := slices.Concat(l.cluster.AttachmentsOnNode(left.Node), l.cluster.AttachmentsOfHandle(l.name, target.VolumeHandle))
	candidates := l.candidates(left, target, some)
	return l.readOwners(ctx, left, target, append([]string{left.Name}, candidates...))
}

// ownersElsewhere returns whether another VolumeAttachment than the claim's owns a volume at a target where
// the claim has it, or had it. If the claim is being detached, it reads only VolumeAttachments that surely
// are about the volume: the claim has no successor of its name yet.
func (l *leader) ownersElsewhere(ctx context.Context, claim volume.Identity, op attach.Operation, target attach.Target) (volume.Ownership, error) {
	if op == attach.Attaching {
		return l.owners(ctx, claim, target)
	}
	return l.readOwners(ctx, claim, target, l.surelyOf(target, l.candidates(claim, target, nil)))
}

// readOwners returns whether one of some VolumeAttachments owns a volume at a target, besides the one that
// left it there. It reads each from the API server: the cache may know neither of its begin nor of its
// end. An error comes with Unclear. It blocks until the API server has answered.
func (l *leader) readOwners(ctx context.Context, left volume.Identity, target attach.Target, names []string) (volume.Ownership, error) {
	found, failed := volume.NoOwner, error(nil)
	for _, name := range names {
		va, err := l.read(ctx, name)
		if err != nil {
			found, failed = max(found, volume.Unclear), fmt.Errorf("read volumeattachment %q: %w", name, err)
			continue
		}
		if va != nil && va.UID == left.UID && va.DeletionTimestamp == nil && va.Status.Attached && attach.NotedTarget(va) == target {
			// It is attached there once more, unless it is about to be attached elsewhere.
			if attach.HasFinalizer(va.Finalizers, l.finalizer) && !l.table.HasDisowned(left, target) {
				return volume.Owned, nil
			}
			found = max(found, volume.Unclear)
		}
		if va == nil || va.UID == left.UID || va.Spec.Attacher != l.name {
			continue
		}
		if found = max(found, l.ownership(va, target)); found == volume.Owned {
			return found, nil
		}
	}
	return found, failed
}

// ownership returns whether one VolumeAttachment owns the volume at a target.
func (l *leader) ownership(va *storagev1.VolumeAttachment, target attach.Target) volume.Ownership {
	may, surely := l.decider().ClaimsTarget(l.inputsOf(va), target)
	guarded := attach.HasFinalizer(va.Finalizers, l.finalizer)
	switch {
	case !may || va.DeletionTimestamp != nil:
		return volume.NoOwner
	case surely && guarded:
		return volume.Owned
	case guarded || va.Status.Attached:
		return volume.Unclear
	}
	return volume.Wanted
}

// read returns a VolumeAttachment as the API server has it now, nil if there is none. An API
// server that cannot answer is asked again for a while.
func (l *leader) read(ctx context.Context, name string) (*storagev1.VolumeAttachment, error) {
	ctx, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	for {
		va, err := l.cluster.ReadAttachment(ctx, name)
		if err == nil || ctx.Err() != nil || !attach.NotReady(err) {
			return va, err
		}
		sleep(ctx, fencePause)
	}
}

// candidates returns the names of other VolumeAttachments that may own a volume at a target: out of some, of
// those that are noted at its node ID, which may be another node's by now, and of those that name
// the same PersistentVolume.
func (l *leader) candidates(left volume.Identity, target attach.Target, some []*storagev1.VolumeAttachment) []string {
	decider := l.decider()
	var names []string
	for _, va := range slices.Concat(some, l.cluster.AttachmentsAtNodeID(target.NodeID), l.cluster.AttachmentsOfVolume(left.PersistentVolume)) {
		noted := attach.NotedTarget(va)
		if va.Name == left.Name || va.Spec.Attacher != l.name || va.DeletionTimestamp != nil || slices.Contains(names, va.Name) ||
			noted.VolumeHandle != "" && noted.VolumeHandle != target.VolumeHandle {
			continue
		}
		va = l.overlay.Newest(va)
		inputs := l.inputsOf(va)
		if inputs.PersistentVolume == nil && !l.isTouched(va) && attach.VolumeName(va) != left.PersistentVolume {
			continue // it waits for another PersistentVolume, and has nothing attached yet
		}
		if may, _ := decider.ClaimsTarget(inputs, target); may && va.DeletionTimestamp == nil {
			names = append(names, va.Name)
		}
	}
	return names
}

// surelyOf returns those of some VolumeAttachments that surely are about the volume of a target: one that
// may be about any volume must not keep all others from being detached.
func (l *leader) surelyOf(target attach.Target, names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool {
		va := l.overlay.Attachment(name)
		return va == nil || attach.HandleOf(l.inputsOf(va)) != target.VolumeHandle
	})
}

// isTouched reports whether anybody may have called the driver for a VolumeAttachment.
func (l *leader) isTouched(va *storagev1.VolumeAttachment) bool {
	return va.Status.Attached || attach.HasFinalizer(va.Finalizers, l.finalizer) || va.Spec.Source.InlineVolumeSpec != nil
}
