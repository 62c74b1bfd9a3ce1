package hub

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// A volume is dangling if the driver lists it on a node where no VolumeAttachment asks for it. With drift.unexpected:
// report, dangling volumes are kept here; with detach they become unowned publications of the Table.

// dangling has the volumes of one term that are only reported.
type dangling struct {
	mu       sync.Mutex
	reported map[attach.Target]reportedVolume // guarded by mu
}

type reportedVolume struct {
	attach.Dangling
	since time.Time
}

// has reports whether a volume is reported at a target.
func (d *dangling) has(at attach.Target) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.reported[at]
	return ok
}

func (d *dangling) add(found attach.Dangling) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.reported == nil {
		d.reported = map[attach.Target]reportedVolume{}
	}
	d.reported[found.Listed] = reportedVolume{found, time.Now()}
}

// keep drops the volumes that are not found any more.
func (d *dangling) keep(found map[attach.Target]attach.Dangling) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.reported, func(at attach.Target, _ reportedVolume) bool { _, ok := found[at]; return !ok })
}

// views returns the reported volumes for the status. It leaves out those for which a VolumeAttachment asks by now.
func (d *dangling) views(l *leader) []status.UnownedPublication {
	d.mu.Lock()
	reported := slices.Collect(maps.Values(d.reported))
	d.mu.Unlock()
	var views []status.UnownedPublication
	for _, r := range reported {
		pv := r.Volumes[0].Name
		if slices.ContainsFunc(l.cluster.AttachmentsOfVolume(pv), func(va *storagev1.VolumeAttachment) bool {
			return va.Spec.Attacher == l.name && slices.Contains(r.Nodes, va.Spec.NodeName)
		}) {
			continue
		}
		at := r.Record().Target
		views = append(views, status.UnownedPublication{VolumeHandle: at.VolumeHandle, NodeID: at.NodeID, Node: r.Node(),
			PersistentVolume: pv, Since: r.since, Listed: true, ReportOnly: true})
	}
	return views
}

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
		if v := l.cluster.StoredOrDeleted(attach.VolumeName(va)); v != nil {
			handle = v.Handle()
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
	unasked := l.asked(l.attachments()).Unasked(p)
	if len(unasked) == 0 {
		return nil
	}
	if known, err := l.knowsAll(ctx); err != nil || !known {
		return nil // a former leader may have attached volumes for VolumeAttachments that the cache lacks
	}
	nodes := l.cluster.NodesOfDriver(l.name)
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

// findVolumes fills in the PersistentVolumes of the driver that have the handles of volumes on nodes of this cluster.
func (l *leader) findVolumes(found []attach.Dangling) {
	byHandle, nodeIDs := map[string][]*attach.Dangling{}, map[string]bool{}
	for i := range found {
		if d := &found[i]; len(d.Nodes) > 0 {
			byHandle[d.Listed.VolumeHandle] = append(byHandle[d.Listed.VolumeHandle], d)
			nodeIDs[d.Listed.NodeID] = true
		}
	}
	if len(byHandle) == 0 {
		return
	}
	decider := l.decider()
	for _, v := range l.cluster.AllVolumes() {
		handles := map[string]bool{v.Handle(): true}
		if decider.IsMigrated() {
			for nodeID := range nodeIDs {
				handles[decider.ListedHandle(v.Handle(), nodeID)] = true
			}
		}
		var pv *corev1.PersistentVolume
		for handle := range handles {
			for _, d := range byHandle[handle] {
				if pv == nil {
					pv = v.PersistentVolume()
				}
				if decider.IsOf(pv) {
					d.Volumes = append(d.Volumes, pv)
				}
			}
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
	decider.Capabilities.ListPublishedNodes = true // p is known, by a listing or not
	for _, va := range l.cluster.AttachmentsOfVolume(d.Volumes[0].Name) {
		va = l.overlay.Newest(va)
		if va.Spec.Attacher != l.name {
			continue
		}
		if kind, _ := decider.Drift(l.cachedInputs(va), p); kind == attach.DriftMissing {
			d.Missing = va.Name
		}
	}
}

// onFound acts on what a listing shows that no VolumeAttachment asks for.
func (w *driftWatch) onFound(found []attach.Dangling) {
	l, settings := w.leader, w.leader.settings().Drift
	now, counted := map[attach.Target]attach.Dangling{}, map[attach.Target]attach.DriftKind{}
	for _, d := range found {
		if d.Kept() != "" {
			continue
		}
		if _, known := l.table.Unowned(d.Record().Target); known { // an attach that is refused has led to its detach
			continue
		}
		now[d.Listed] = d
		if settings.Unexpected == registry.UnexpectedDetach || !l.dangling.has(d.Listed) {
			counted[d.Listed] = attach.DriftUnexpected
		}
	}
	l.dangling.keep(now)
	if settings.Unexpected != registry.UnexpectedDetach {
		l.table.DropFound() // the next listings report them
	}
	for _, at := range w.unexpected.Add(counted, settings.Confirmations) {
		l.onDangling(now[at])
	}
}

// onDangling reports a volume that is surely dangling, and asks for its detach if drift.unexpected says so.
func (l *leader) onDangling(d attach.Dangling) {
	action, pv, record := l.settings().Drift.Unexpected, d.Volumes[0], d.Record()
	id := volume.Identity{Node: d.Node(), PersistentVolume: pv.Name}
	l.counters.metrics.Drift(string(attach.DriftUnexpected), string(action))
	l.events.dangling(pv, record.Target, d.Node(), action)
	l.log.line(l.unownedLogger(volume.Unowned{Publication: volume.Publication{Record: record}, FormerOwner: id}), true,
		"The driver reports the volume on a node where no VolumeAttachment asks for it", "kind", attach.DriftUnexpected, "action", action)
	if action == registry.UnexpectedDetach {
		l.table.Found(id, record)
		l.dangling.drop(d.Listed)
		return
	}
	l.dangling.add(d)
}

// drop drops a volume that is about to be detached.
func (d *dangling) drop(at attach.Target) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.reported, at)
}

// mayDetach reports whether a volume that only the driver reports may still be detached.
func (l *leader) mayDetach(ctx context.Context, u volume.Unowned) bool {
	if l.settings().Drift.Unexpected != registry.UnexpectedDetach {
		return false
	}
	// Unknown: the driver has reported other nodes too. Its own entry is no other work at the target.
	p := csiclient.Published{l.decider().ListedHandle(u.Target.VolumeHandle, u.Target.NodeID): {IDs: []string{u.Target.NodeID}, Unknown: true}}
	found := l.findDangling(ctx, p, nil, func(attach.Target) bool { return false })
	return len(found) == 1 && found[0].Kept() == ""
}

// sortUnowned sorts publications, the oldest first.
func sortUnowned(all []status.UnownedPublication) {
	slices.SortStableFunc(all, func(a, b status.UnownedPublication) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.VolumeHandle, b.VolumeHandle), cmp.Compare(a.NodeID, b.NodeID))
	})
}
