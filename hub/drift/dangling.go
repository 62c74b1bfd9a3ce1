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
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// Dangling is a volume that a listing shows at a target, with what decides whether it is dangling there.
type Dangling struct {
	Listed attach.Target // as the driver lists it
	Facts
}

// Record returns the record of the publication. There is a PersistentVolume.
func (d *Dangling) Record() attach.Record {
	v := d.Volumes[0]
	return attach.Record{Target: attach.Target{VolumeHandle: v.Handle, NodeID: d.Listed.NodeID}, SecretRef: v.SecretRef, SecretKnown: true, Nodes: v.Nodes}
}

// Reported is a dangling volume that is not detached.
type Reported struct {
	*Dangling
	Since time.Time
	Kept  string // why it is not detached, although drift.unexpected is detach; "": it is report
}

// Reported returns the dangling volumes that are not detached, without those for which a VolumeAttachment, of any attacher, asks by
// now.
func (w *Watch) Reported() []Reported {
	w.mu.Lock()
	all := slices.Collect(maps.Values(w.reported))
	w.mu.Unlock()
	return slices.DeleteFunc(all, func(r Reported) bool {
		return slices.ContainsFunc(w.Cluster.AttachmentsOfVolume(r.Volumes[0].Name), func(va *storagev1.VolumeAttachment) bool {
			return slices.Contains(r.Nodes, va.Spec.NodeName)
		})
	})
}

// actOnDangling acts on what a listing shows on nodes of this cluster where no VolumeAttachment asks for it.
func (w *Watch) actOnDangling(ctx context.Context, l listing) {
	found := map[attach.Target]*Dangling{}
	for _, d := range w.facts(ctx, l, w.unclaimed(l)) {
		if _, dangling := WhyKept(d.Facts); dangling {
			found[d.Listed] = d
		}
	}
	w.dangling = next(w.dangling, slices.Collect(maps.Keys(found)))
	round := w.Nodes.Round() // each Node is read once, and not for each volume
	reported, acts := map[attach.Target]Reported{}, map[attach.Target]string{}
	for at, n := range w.dangling {
		if n < 2 {
			w.confirm = true
			continue
		}
		d, kept := found[at], w.whyKept(ctx, round, found[at])
		before, known := w.reported[at]
		if !known || kept == "" {
			acts[at], before.Since = kept, time.Now()
		}
		switch {
		case kept == "":
			delete(w.dangling, at) // what is listed after the detach counts anew
		case d.Action == registry.UnexpectedDetach:
			reported[at] = Reported{d, before.Since, kept}
		default:
			reported[at] = Reported{d, before.Since, ""}
		}
	}
	w.mu.Lock()
	w.reported = reported
	w.mu.Unlock()
	for at, kept := range acts {
		w.Actions.Dangling(found[at], kept)
	}
}

// WhyKeptNow returns why a volume that only a listing has shown must not be detached from a target any more, for people; "" if it may
// be. It blocks until the API server has returned the nodes.
func (w *Watch) WhyKeptNow(ctx context.Context, target attach.Target) string {
	l := listing{driver: w.Driver(), changed: func(attach.Target) bool { return false }} // the detach itself
	l.after = w.View.AttachmentsOfDriver(l.driver.Name)
	at := attach.Target{VolumeHandle: l.driver.ListedHandle(target.VolumeHandle, target.NodeID), NodeID: target.NodeID}
	l.published = csiclient.Published{at.VolumeHandle: {IDs: []string{at.NodeID}, Unknown: true}} // also elsewhere, perhaps
	w.findClaimants(&l)
	return w.whyKept(ctx, w.Nodes.Round(), w.facts(ctx, l, []attach.Target{at})[0])
}

// whyKept is WhyKept, and asks the API server whether the volume is in use if nothing else keeps it.
func (w *Watch) whyKept(ctx context.Context, round uint64, d *Dangling) string {
	if why, _ := WhyKept(d.Facts); why != "" {
		return why
	}
	for _, name := range d.Nodes {
		switch node, err := w.Nodes.Get(ctx, name, round); {
		case err != nil:
			d.Unsure = cmp.Or(d.Unsure, fmt.Sprintf("%s is not known: %v", name, err))
		case node == nil:
			d.Unsure = cmp.Or(d.Unsure, name+" is not known: the Node object is gone")
		case w.Driver().InUse(node, d.Record().Target.VolumeHandle):
			d.User = name
		}
	}
	why, _ := WhyKept(d.Facts)
	return why
}

// unclaimed returns the targets on nodes of this cluster that a listing has and no VolumeAttachment surely asks for.
func (w *Watch) unclaimed(l listing) []attach.Target {
	if !l.driver.Capabilities.PublishUnpublish || l.driver.NoAttach { // nobody has to ask for a volume
		return nil
	}
	var targets []attach.Target
	for handle, published := range l.published {
		for _, nodeID := range published.IDs {
			if at := (attach.Target{VolumeHandle: handle, NodeID: nodeID}); len(l.nodes[nodeID]) > 0 && !l.claimed[at] {
				targets = append(targets, at)
			}
		}
	}
	return targets
}

func isGuarded(va *storagev1.VolumeAttachment) bool {
	return attach.HasFinalizer(va.Finalizers, attach.Finalizer(va.Spec.Attacher))
}

// facts returns what decides whether volumes may be detached from targets that a listing has, except what their nodes say. It blocks
// until the API server has said which VolumeAttachments the cache must have.
func (w *Watch) facts(ctx context.Context, l listing, targets []attach.Target) []*Dangling {
	if len(targets) == 0 {
		return nil
	}
	knowsAll, err := w.KnowsAll(ctx)
	found, byKey := make([]*Dangling, len(targets)), map[string][]*Dangling{}
	for i, at := range targets {
		found[i] = &Dangling{at, Facts{Unasked: l.driver.NoAttach, Nodes: slices.Sorted(slices.Values(l.nodes[at.NodeID])),
			Partial: err != nil || !knowsAll, Action: w.Settings().Unexpected}}
		key := l.driver.HandleKey(at.VolumeHandle)
		byKey[key] = append(byKey[key], found[i])
	}
	for _, v := range w.Cluster.AllVolumes() { // of all drivers: they may share a storage system
		for _, d := range byKey[l.driver.HandleKey(v.Handle)] {
			if at := d.Listed; v.Handle == at.VolumeHandle || l.driver.ListedHandle(v.Handle, at.NodeID) == at.VolumeHandle {
				d.Volumes = append(d.Volumes, v)
			}
		}
	}
	for _, d := range found {
		if !slices.ContainsFunc(d.Volumes, func(v *attach.Volume) bool { return v.Driver == l.driver.Name }) {
			d.Volumes = nil
		}
		if len(d.Volumes) == 1 {
			d.Changed = l.changed(d.Record().Target)
			w.findClaimant(l, d)
		}
	}
	return found
}

// findClaimants finds what the driver's VolumeAttachments may ask for, also those that are gone since the first page: the noted volume,
// or else that of their PersistentVolume, at the noted node ID and at that of their node.
func (w *Watch) findClaimants(l *listing) {
	l.nodes, l.claimed, l.claimants = w.Cluster.NodesOfDriver(l.driver.Name), map[attach.Target]bool{}, map[string][]*storagev1.VolumeAttachment{}
	for _, va := range slices.AppendSeq(slices.Clone(l.after), maps.Values(l.before)) {
		if va.DeletionTimestamp != nil && !isGuarded(va) {
			continue // detached before, or never attached
		}
		noted := attach.NotedTarget(va).NodeID
		registered, _ := attach.NodeID(w.Cluster.CSINode(va.Spec.NodeName), l.driver.Name)
		nodeID := cmp.Or(noted, registered)
		l.claimed[attach.Target{VolumeHandle: l.driver.ListedHandle(w.Cluster.VolumeHandle(va), nodeID), NodeID: nodeID}] = true
		l.claimants[nodeID] = append(l.claimants[nodeID], va)
		if registered != "" && registered != nodeID {
			l.claimants[registered] = append(l.claimants[registered], va)
		}
	}
}

// findClaimant finds the VolumeAttachments that keep a volume, among those that may ask for one at its node ID and those of its
// PersistentVolume.
func (w *Watch) findClaimant(l listing, d *Dangling) {
	for _, va := range slices.Concat(l.claimants[d.Listed.NodeID], l.claimants[""]) {
		noted, handle := attach.NotedTarget(va), w.Cluster.VolumeHandle(va)
		// It may have been attached before its PersistentVolume was created again with another handle.
		unknown := noted.VolumeHandle == "" && (va.Status.Attached || isGuarded(va) || noted.NodeID != "") &&
			(l.driver.IsMigrated() || attach.MayBeOf(va, d.Listed.VolumeHandle))
		if unknown || attach.VolumeName(va) == d.Volumes[0].Name || handle != "" && l.driver.ListedHandle(handle, d.Listed.NodeID) == d.Listed.VolumeHandle {
			d.Claimant = va.Name
		}
	}
	for _, va := range w.Cluster.AttachmentsOfVolume(d.Volumes[0].Name) {
		isOurs := va.Spec.Attacher == l.driver.Name
		switch is, _ := isMissing(l.driver, w.View.CachedInputs(w.View.Newest(va)), l.published); {
		case isOurs && is:
			d.Missing = va.Name
		case !isOurs && slices.Contains(d.Nodes, va.Spec.NodeName): // of a driver that wraps this one, say
			d.Claimant = va.Name
		}
	}
}
