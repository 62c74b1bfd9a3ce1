package hub

import (
	"cmp"
	"context"
	"slices"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// attachments returns the newest known states of the driver's VolumeAttachments.
func (l *leader) attachments() []*storagev1.VolumeAttachment {
	vas := l.cluster.AttachmentsOfDriver(l.name)
	for i, va := range vas {
		vas[i] = l.overlay.Newest(va)
	}
	return vas
}

// asked returns the targets that some VolumeAttachments ask for.
func (l *leader) asked(vas []*storagev1.VolumeAttachment) *attach.Asked {
	asked := l.decider().Asked()
	for _, va := range vas {
		handle := ""
		if v := l.cluster.VolumeOrDeleted(attach.VolumeName(va)); v != nil {
			handle = v.Handle
		} else if va.Spec.Source.InlineVolumeSpec != nil {
			handle = attach.HandleOf(attach.Inputs{VolumeAttachment: va})
		}
		asked.Add(va, handle, l.cluster.CSINode(va.Spec.NodeName))
	}
	return asked
}

// findDangling returns the places where the driver reports volumes and no VolumeAttachment asks for them, with what decides
// whether the hub may detach them there. before has the VolumeAttachments from before the driver was asked. worked
// reports whether there was other work at a target since then.
func (l *leader) findDangling(ctx context.Context, p csiclient.Published, before []*storagev1.VolumeAttachment, worked func(attach.Target) bool) []attach.Dangling {
	decider := l.decider()
	if !decider.Capabilities.PublishUnpublish || decider.NoAttach { // nobody has to ask for a volume
		return nil
	}
	if !p.Any() {
		return nil
	}
	nodes := l.cluster.NodesOfDriver(l.name)
	asked := l.decider().Asked()
	if len(p) > 1 || l.isHere(p, nodes) { // else VolumeAttachments do not matter
		asked = l.asked(l.attachments())
	}
	unasked := asked.Unasked(p)
	if len(unasked) == 0 {
		return nil
	}
	if known, err := l.knowsAll(ctx); err != nil || !known {
		return nil // a former leader may have attached volumes for VolumeAttachments that the cache lacks
	}
	found := make([]attach.Dangling, len(unasked))
	for i, at := range unasked {
		found[i] = attach.Dangling{Listed: at, Nodes: nodes[at.NodeID]}
	}
	l.findVolumes(found)
	askedBefore := l.asked(before)
	for i := range found {
		l.judge(&found[i], p, askedBefore, worked)
	}
	return found
}

// isHere reports whether a listing names a node of this cluster.
func (l *leader) isHere(p csiclient.Published, nodes map[string][]string) bool {
	for _, published := range p {
		if slices.ContainsFunc(published.IDs, func(id string) bool { return len(nodes[id]) > 0 }) {
			return true
		}
	}
	return false
}

// findVolumes fills in the PersistentVolumes that have the handles of volumes on nodes of this cluster. Drivers may share a
// storage system, so those of other drivers count too.
func (l *leader) findVolumes(found []attach.Dangling) {
	decider := l.decider()
	byKey := map[string][]*attach.Dangling{}
	for i := range found {
		if d := &found[i]; len(d.Nodes) > 0 {
			key := decider.HandleKey(d.Listed.VolumeHandle)
			byKey[key] = append(byKey[key], d)
		}
	}
	if len(byKey) == 0 {
		return
	}
	for _, v := range l.cluster.AllVolumes() {
		for _, d := range byKey[decider.HandleKey(v.Handle)] {
			if at := d.Listed; v.Handle != at.VolumeHandle && decider.ListedHandle(v.Handle, at.NodeID) != at.VolumeHandle {
				continue
			}
			d.Volumes = append(d.Volumes, v)
		}
	}
	for i := range found {
		if !slices.ContainsFunc(found[i].Volumes, func(v *attach.Volume) bool { return v.Driver == l.name }) {
			found[i].Volumes = nil
		}
	}
}

// judge fills in what is left to decide about a volume.
func (l *leader) judge(d *attach.Dangling, p csiclient.Published, before *attach.Asked, worked func(attach.Target) bool) {
	if len(d.Nodes) == 0 || len(d.Volumes) != 1 {
		return
	}
	slices.Sort(d.Nodes)
	if va := before.By(d.Listed); va != nil {
		d.Claimant = va.Name
	}
	d.Worked = worked(d.Record().Target)
	decider := l.decider()
	for _, node := range d.Nodes {
		for _, va := range l.cluster.AttachmentsOnNode(node) {
			if decider.MayHave(l.overlay.Newest(va), d.Record().Target.VolumeHandle) {
				d.Claimant = va.Name
			}
		}
	}
	decider.Capabilities.ListPublishedNodes = true // p is known, by a listing or not
	for _, va := range l.cluster.AttachmentsOfVolume(d.Volumes[0].Name) {
		va = l.overlay.Newest(va)
		if va.Spec.Attacher != l.name {
			if slices.Contains(d.Nodes, va.Spec.NodeName) { // a driver that wraps this one, say
				d.Claimant = va.Name
			}
			continue
		}
		if kind, _ := decider.Drift(l.cachedInputs(va), p); kind == attach.DriftMissing {
			d.Missing = va.Name
		}
	}
}

// keptNow returns why a volume that only the driver reports must not be detached any more, for people; "" if it may be.
// It blocks until the API server has returned the nodes.
func (l *leader) keptNow(ctx context.Context, u volume.Unowned) string {
	if action := l.settings().Drift.Unexpected; action != registry.UnexpectedDetach {
		return "drift.unexpected is " + string(action)
	}
	// Unknown: the driver has reported other nodes too. Its own entry is no other work at the target.
	p := csiclient.Published{l.decider().ListedHandle(u.Target.VolumeHandle, u.Target.NodeID): {IDs: []string{u.Target.NodeID}, Unknown: true}}
	found := l.findDangling(ctx, p, nil, func(attach.Target) bool { return false })
	if len(found) != 1 {
		return "a VolumeAttachment may ask for it there by now"
	}
	return cmp.Or(found[0].Kept(), l.maybeInUse(ctx, l.nodesNow(), found[0].Nodes, u.Target.VolumeHandle))
}
