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

// readFor bounds how long the API server is asked for a VolumeAttachment, again and again.
const readFor = 2 * time.Second

// owners says who has an unowned publication's volume at its target, besides the VolumeAttachment that
// left it there. The API server is asked about the one of the same name too: names are made of
// volume, driver and node, and come again. It blocks for as long as that takes.
func (d *driver) owners(ctx context.Context, left volume.Identity, target attach.Target) (volume.Ownership, error) {
	some := slices.Concat(d.cluster.AttachmentsOnNode(left.Node), d.cluster.AttachmentsOfHandle(d.name, target.VolumeHandle))
	candidates := d.candidates(left, target, some)
	return d.readOwners(ctx, left, target, append([]string{left.Name}, candidates...))
}

// ownersElsewhere says who else has a volume at a target where a claim has it, or had it. If the claim
// is being detached, the API server is asked only about those that surely are about the volume: it
// has no successor of its name yet.
func (d *driver) ownersElsewhere(ctx context.Context, claim volume.Identity, op attach.Operation, target attach.Target) (volume.Ownership, error) {
	if op == attach.Attaching {
		return d.owners(ctx, claim, target)
	}
	return d.readOwners(ctx, claim, target, d.surelyOf(target, d.candidates(claim, target, nil)))
}

// readOwners says which of some VolumeAttachments has a volume at a target, besides the one that left
// it there. The API server is asked about each: the cache may know neither of a begin nor of an
// end. An error comes with Unclear. It blocks for as long as that takes.
func (d *driver) readOwners(ctx context.Context, left volume.Identity, target attach.Target, names []string) (volume.Ownership, error) {
	found, failed := volume.NoOwner, error(nil)
	for _, name := range names {
		va, err := d.read(ctx, name)
		if err != nil {
			found, failed = max(found, volume.Unclear), fmt.Errorf("read volumeattachment %q: %w", name, err)
			continue
		}
		if va != nil && va.UID == left.UID && va.DeletionTimestamp == nil && va.Status.Attached && attach.NotedTarget(va) == target {
			// It is attached there once more, unless it is about to be attached elsewhere.
			if attach.HasFinalizer(va.Finalizers, d.finalizer) && !d.table.HasDisowned(left, target) {
				return volume.Owned, nil
			}
			found = max(found, volume.Unclear)
		}
		if va == nil || va.UID == left.UID || va.Spec.Attacher != d.name {
			continue
		}
		if found = max(found, d.ownership(va, target)); found == volume.Owned {
			return found, nil
		}
	}
	return found, failed
}

// ownership says whether one VolumeAttachment has the volume at a target.
func (d *driver) ownership(va *storagev1.VolumeAttachment, target attach.Target) volume.Ownership {
	may, surely := d.decider().Wants(d.factsOf(va), target)
	guarded := attach.HasFinalizer(va.Finalizers, d.finalizer)
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
func (d *driver) read(ctx context.Context, name string) (*storagev1.VolumeAttachment, error) {
	ctx, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	for {
		va, err := d.cluster.ReadAttachment(ctx, name)
		if err == nil || ctx.Err() != nil || !attach.NotReady(err) {
			return va, err
		}
		sleep(ctx, fencePause)
	}
}

// candidates are the names of other VolumeAttachments that may have a volume at a target, out of some
// and of those that are noted at its node ID or name the same PersistentVolume: a node ID may be
// that of another node by now.
func (d *driver) candidates(left volume.Identity, target attach.Target, some []*storagev1.VolumeAttachment) []string {
	decider := d.decider()
	var names []string
	for _, va := range slices.Concat(some, d.cluster.AttachmentsAtNodeID(target.NodeID), d.cluster.AttachmentsOfVolume(left.PersistentVolume)) {
		noted := attach.NotedTarget(va)
		if va.Name == left.Name || va.Spec.Attacher != d.name || va.DeletionTimestamp != nil || slices.Contains(names, va.Name) ||
			noted.VolumeHandle != "" && noted.VolumeHandle != target.VolumeHandle {
			continue
		}
		va = d.overlay.Newest(va)
		facts := d.factsOf(va)
		if facts.PersistentVolume == nil && !d.isTouched(va) && attach.VolumeName(va) != left.PersistentVolume {
			continue // it waits for another PersistentVolume, and has nothing attached yet
		}
		if may, _ := decider.Wants(facts, target); may && va.DeletionTimestamp == nil {
			names = append(names, va.Name)
		}
	}
	return names
}

// surelyOf returns those of some VolumeAttachments that are about the volume of a target: one of
// which nobody can tell keeps nothing else from being detached.
func (d *driver) surelyOf(target attach.Target, names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool {
		va := d.overlay.Attachment(name)
		return va == nil || attach.HandleOf(d.factsOf(va)) != target.VolumeHandle
	})
}

// isTouched reports whether anybody may have called the driver for a VolumeAttachment.
func (d *driver) isTouched(va *storagev1.VolumeAttachment) bool {
	return va.Status.Attached || attach.HasFinalizer(va.Finalizers, d.finalizer) || va.Spec.Source.InlineVolumeSpec != nil
}
