package hub

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
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
	kept  string // why it is not detached, although drift.unexpected is detach; "": it is report
}

// at returns the volume that is reported at a target, and whether there is one.
func (d *dangling) at(at attach.Target) (reportedVolume, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r, ok := d.reported[at]
	return r, ok
}

// add adds a volume, or changes why it is not detached.
func (d *dangling) add(found attach.Dangling, kept string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.reported == nil {
		d.reported = map[attach.Target]reportedVolume{}
	}
	since := time.Now()
	if r, ok := d.reported[found.Listed]; ok {
		since = r.since
	}
	d.reported[found.Listed] = reportedVolume{found, since, kept}
}

// drop drops a volume that is about to be detached.
func (d *dangling) drop(at attach.Target) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.reported, at)
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
			return slices.Contains(r.Nodes, va.Spec.NodeName) // of any attacher
		}) {
			continue
		}
		at := r.Record().Target
		views = append(views, status.UnownedPublication{VolumeHandle: at.VolumeHandle, NodeID: at.NodeID, Node: r.Node(),
			PersistentVolume: pv, Since: r.since, LastError: r.kept, Listed: true, ReportOnly: true})
	}
	return views
}

// onFound acts on what a listing shows that no VolumeAttachment asks for.
func (w *driftWatch) onFound(ctx context.Context, found []attach.Dangling) {
	l, settings := w.leader, w.leader.settings().Drift
	var again []attach.Target
	now, counted := map[attach.Target]attach.Dangling{}, map[attach.Target]attach.DriftKind{}
	for _, d := range found {
		if d.Kept() != "" {
			continue
		}
		if _, known := l.table.Unowned(d.Record().Target); known {
			continue
		}
		now[d.Listed] = d
		switch r, reported := l.dangling.at(d.Listed); {
		case r.kept != "":
			again = append(again, d.Listed) // confirmed before
		case settings.Unexpected == registry.UnexpectedDetach || !reported:
			counted[d.Listed] = attach.DriftUnexpected
		}
	}
	l.dangling.keep(now)
	if settings.Unexpected != registry.UnexpectedDetach {
		l.table.DropFound() // the next listings report them
	}
	nodes := l.nodesNow() // each Node is read once, and not for each volume
	for _, at := range append(w.unexpected.Add(counted), again...) {
		l.onDangling(ctx, nodes, now[at])
	}
}

// onDangling reports a volume that is surely dangling, and asks for its detach if drift.unexpected says so and the volume
// is not in use.
func (l *leader) onDangling(ctx context.Context, now *nodesNow, d attach.Dangling) {
	kept := "" // why not, although drift.unexpected says so, for people
	action, pv, record := l.settings().Drift.Unexpected, d.Volumes[0], d.Record()
	end := danglingEnd(action)
	if action == registry.UnexpectedDetach {
		if kept = l.maybeInUse(ctx, now, d.Nodes, record.Target.VolumeHandle); kept != "" {
			action, end = registry.UnexpectedReport, "not detaching it there because "+kept
		}
	}
	if r, reported := l.dangling.at(d.Listed); reported && action == registry.UnexpectedReport && (r.kept == "") == (kept == "") {
		l.dangling.add(d, kept)
		return
	}
	id := volume.Identity{Node: d.Node(), PersistentVolume: pv.Name}
	l.counters.metrics.Drift(string(attach.DriftUnexpected), string(action))
	l.events.dangling(pv, record.Target, d.Node(), end)
	l.log.line(l.unownedLogger(volume.Unowned{Publication: volume.Publication{Record: record}, FormerOwner: id}), true,
		"The driver reports the volume on a node where no VolumeAttachment asks for it", "kind", attach.DriftUnexpected, "action", action, "kept", kept)
	if action == registry.UnexpectedDetach {
		l.table.Found(id, record)
		l.dangling.drop(d.Listed)
		return
	}
	l.dangling.add(d, kept)
}
