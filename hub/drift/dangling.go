package drift

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// dangling is a volume that a listing has on a node without a VolumeAttachment that needs it there.
type dangling struct {
	record attach.Record
	volume *attach.Volume
	nodes  []string  // of this cluster for which the driver has registered the node ID
	since  time.Time // when it was reported; zero: one listing alone has it
	kept   string    // why it is not detached, although drift.unexpected is detach; "": it is report
}

// Reported returns the dangling volumes that are not detached, without those that a VolumeAttachment, of any attacher, needs by
// now.
func (w *Watch) Reported() []status.DanglingPublication {
	w.mu.Lock()
	defer w.mu.Unlock()
	var reported []status.DanglingPublication
	for _, d := range w.dangling {
		needs := func(va *storagev1.VolumeAttachment) bool { return slices.Contains(d.nodes, va.Spec.NodeName) }
		if !d.since.IsZero() && !slices.ContainsFunc(w.Cluster.AttachmentsOfVolume(d.volume.Name), needs) {
			reported = append(reported, status.DanglingPublication{VolumeHandle: d.volume.Handle, NodeID: d.record.Target.NodeID, Node: d.nodes[0],
				PersistentVolume: d.volume.Name, Since: d.since, LastError: d.kept, FromList: true, ReportOnly: true})
		}
	}
	return reported
}

// checkDangling acts on the volumes that two listings in a row have on nodes of this cluster where no VolumeAttachment needs them.
func (w *Watch) checkDangling(ctx context.Context, l listing) {
	found, round := map[attach.Target]*dangling{}, w.Nodes.Round() // each Node is read once, and not for each volume
	w.findAttachments(&l)
	targets := l.dangling()
	w.findVolumes(ctx, &l, targets...)
	for _, at := range targets {
		d, _ := w.look(&l, at)
		if d == nil || w.Table.Touched(d.record.Target) {
			continue
		}
		found[at] = d
		before := w.dangling[at]
		if before == nil {
			w.confirm = true
			continue
		}
		kept := w.whyKept(ctx, round, d)
		if d.since = before.since; d.since.IsZero() || kept == "" {
			d.since = time.Now()
			w.act(d, kept)
		}
		if kept == "" {
			delete(found, at) // what is listed after the detach counts anew
		} else if w.Settings().Drift.Unexpected == registry.UnexpectedDetach {
			d.kept = kept
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dangling = found
}

// act reports a dangling volume, and has it detached if nothing keeps it.
func (w *Watch) act(d *dangling, kept string) {
	action, end := registry.UnexpectedDetach, "detaching it there"
	if kept != "" {
		action, end = registry.UnexpectedReport, "not detaching it there because "+kept
	}
	id := volume.Identity{Node: d.nodes[0], PersistentVolume: d.volume.Name}
	w.Metrics.Drift("unexpected", string(action))
	w.Warn(d.volume.Object(), driftDetected, fmt.Sprintf("the driver reports volume %q on node %q (node ID %q) without a VolumeAttachment; %s",
		d.volume.Handle, id.Node, d.record.Target.NodeID, end))
	w.Log(w.DanglingLogger(volume.Dangling{Publication: volume.Publication{Record: d.record}, FormerOwner: id}), true,
		"The driver reports the volume on a node without a VolumeAttachment", "kind", "unexpected", "action", action, "kept", kept)
	if kept == "" {
		w.Table.AddDanglingFromList(id, d.record)
	}
}

// WhyKeptNow returns why a volume that only a listing has shown must not be detached from a target any more, for people; "" if it may
// be. It blocks until the API server has returned the nodes.
func (w *Watch) WhyKeptNow(ctx context.Context, target attach.Target) string {
	l := listing{driver: w.Decider(), after: w.Overlay.AttachmentsOfDriver(w.Decider().Name)}
	at := attach.Target{VolumeHandle: l.driver.ListedHandle(target.VolumeHandle, target.NodeID), NodeID: target.NodeID}
	l.published = csiclient.Published{at.VolumeHandle: {IDs: []string{at.NodeID}, Unknown: true}} // also elsewhere, perhaps
	w.findAttachments(&l)
	w.findVolumes(ctx, &l, at)
	d, why := w.look(&l, at)
	if d != nil {
		why = w.whyKept(ctx, w.Nodes.Round(), d)
	}
	return why
}

// whyKept returns why a dangling volume must not be detached, for people; "" if it may be. It blocks until the API server has returned
// its nodes, each once in a round. A Node that is gone proves nothing: its Pods may run on.
func (w *Watch) whyKept(ctx context.Context, round uint64, d *dangling) string {
	if action := w.Settings().Drift.Unexpected; action != registry.UnexpectedDetach {
		return "drift.unexpected is " + string(action)
	}
	unsure := ""
	for _, name := range d.nodes {
		switch node, err := w.Nodes.Get(ctx, name, round); {
		case err != nil:
			unsure = fmt.Sprintf("whether it is in use on node %s is not known: %v", name, err)
		case node == nil:
			unsure = "whether it is in use on node " + name + " is not known: the Node object is gone"
		case w.Decider().InUse(node, d.volume.Handle):
			return "it is in use on node " + name
		}
	}
	return unsure
}

// dangling returns the targets on nodes of this cluster that a listing has and that no VolumeAttachment surely needs.
func (l *listing) dangling() []attach.Target {
	if !l.driver.Capabilities.PublishUnpublish || l.driver.NoAttach { // a volume needs no VolumeAttachment
		return nil
	}
	var targets []attach.Target
	for handle, published := range l.published {
		for _, nodeID := range published.IDs {
			if at := (attach.Target{VolumeHandle: handle, NodeID: nodeID}); len(l.nodes[nodeID]) > 0 && !l.named[at] {
				targets = append(targets, at)
			}
		}
	}
	return targets
}

// findAttachments finds what the driver's VolumeAttachments may need, also those that are gone or have changed since the first page:
// the noted volume, or else that of their PersistentVolume, at the noted node ID and at that of their node.
func (w *Watch) findAttachments(l *listing) {
	l.nodes, l.named, l.attachments = w.Cluster.NodesOfDriver(l.driver.Name), map[attach.Target]bool{}, map[string][]*storagev1.VolumeAttachment{}
	for _, va := range slices.AppendSeq(slices.Clone(l.after), maps.Values(l.before)) {
		if va.DeletionTimestamp != nil && l.driver.RequiredOperation(va) == attach.Idle {
			continue // detached before, or never attached
		}
		noted := attach.NotedTarget(va).NodeID
		registered, _ := attach.NodeID(w.Cluster.CSINode(va.Spec.NodeName), l.driver.Name)
		nodeID := cmp.Or(noted, registered)
		l.named[attach.Target{VolumeHandle: l.driver.ListedHandle(w.Cluster.VolumeHandle(va), nodeID), NodeID: nodeID}] = true
		l.attachments[nodeID] = append(l.attachments[nodeID], va)
		if registered != "" && registered != nodeID {
			l.attachments[registered] = append(l.attachments[registered], va)
		}
	}
}

// findVolumes finds the PersistentVolumes that may be at targets: of all drivers, because drivers may share a storage system. It blocks
// until the API server has said which VolumeAttachments the cache must have.
func (w *Watch) findVolumes(ctx context.Context, l *listing, targets ...attach.Target) {
	if len(targets) == 0 {
		return
	}
	knowsAll, err := w.KnowsAll(ctx)
	l.knowsAll, l.volumes = knowsAll && err == nil, map[string][]*attach.Volume{}
	for _, at := range targets {
		l.volumes[l.driver.HandleKey(at.VolumeHandle)] = nil
	}
	for _, v := range w.Cluster.AllVolumes() {
		key := l.driver.HandleKey(v.Handle)
		if others, is := l.volumes[key]; is {
			l.volumes[key] = append(others, v)
		}
	}
}

// look returns the volume that a listing has at a target if it is dangling there, or else the first reason, for people, why it is not,
// or may not be.
func (w *Watch) look(l *listing, at attach.Target) (d *dangling, why string) {
	nodes := slices.Sorted(slices.Values(l.nodes[at.NodeID]))
	var volumes []*attach.Volume
	for _, v := range l.volumes[l.driver.HandleKey(at.VolumeHandle)] {
		if v.Handle == at.VolumeHandle || l.driver.ListedHandle(v.Handle, at.NodeID) == at.VolumeHandle {
			volumes = append(volumes, v)
		}
	}
	switch {
	case l.driver.NoAttach:
		return nil, "attachRequired is false"
	case len(nodes) == 0:
		return nil, "no CSINode of this cluster has the node ID"
	case !slices.ContainsFunc(volumes, func(v *attach.Volume) bool { return v.Driver == l.driver.Name }):
		return nil, "no PersistentVolume of the driver in this cluster has the volume handle"
	case len(volumes) > 1:
		return nil, "two PersistentVolumes have the volume handle: " + volumes[0].Name + " and " + volumes[1].Name
	case !l.knowsAll:
		return nil, "the cache may lack VolumeAttachments that a former leader has worked for"
	}
	v := volumes[0]
	d = &dangling{volume: v, nodes: nodes, record: v.Record(at.NodeID)}
	for _, va := range slices.Concat(l.attachments[at.NodeID], l.attachments[""]) {
		noted, handle := attach.NotedTarget(va), w.Cluster.VolumeHandle(va)
		// It may have been attached before its PersistentVolume was created again with another handle.
		unknown := noted.VolumeHandle == "" && (va.Status.Attached || l.driver.RecordsCall(va)) &&
			(l.driver.IsMigrated() || !attach.OfAnotherVolume(va, at.VolumeHandle))
		if unknown || attach.VolumeName(va) == v.Name || handle != "" && l.driver.ListedHandle(handle, at.NodeID) == at.VolumeHandle {
			return nil, "VolumeAttachment " + va.Name + " may need it there"
		}
	}
	for _, va := range w.Cluster.AttachmentsOfVolume(v.Name) {
		isOurs := va.Spec.Attacher == l.driver.Name
		switch _, missing := find(l.driver, w.Overlay.Inputs(w.Overlay.Newest(va)), l.published); {
		case isOurs && missing: // the formats of IDs may differ
			return nil, "the driver does not report the volume on the node of VolumeAttachment " + va.Name + ", where it is attached"
		case !isOurs && slices.Contains(nodes, va.Spec.NodeName): // of a driver that wraps this one, say
			return nil, "VolumeAttachment " + va.Name + " may need it there"
		}
	}
	return d, ""
}
