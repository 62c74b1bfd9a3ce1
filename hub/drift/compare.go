package drift

import (
	"cmp"
	"context"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
)

// compare acts on the VolumeAttachments that say otherwise than a listing: those that were settled before it and have not changed
// since, and those whose repair goes on.
func (w *Watch) compare(ctx context.Context, l listing) {
	vas := map[types.UID]*storagev1.VolumeAttachment{}
	var missing []types.UID
	for _, va := range l.after {
		before := l.before[va.Name]
		if before != nil && before.UID == va.UID {
			delete(l.before, va.Name)
		}
		working := w.Queue.Has(va.Name)
		same := before != nil && before.ResourceVersion == va.ResourceVersion && !working && l.driver.RequiredOperation(va) == attach.Idle
		if !canDrift(l.driver, va) || !same && !working {
			continue
		}
		inputs := w.View.CachedInputs(va)
		if (working || va.Status.AttachError != nil) && listed(l.driver, inputs, l.published) {
			w.Actions.Present(ctx, va)
		}
		switch is, err := isMissing(l.driver, inputs, l.published); {
		case working:
		case err != nil:
			w.Logger.V(4).Info("Failed to compare the VolumeAttachment with ListVolumes", "volumeAttachment", va.Name, "err", err)
		case is:
			vas[va.UID], missing = va, append(missing, va.UID)
		}
	}
	w.missing = next(w.missing, missing)
	for uid, n := range w.missing {
		if n%2 == 0 { // an attach since the last time counts anew
			w.Actions.Missing(vas[uid], n == 2)
		} else {
			w.confirm = true
		}
	}
}

// canDrift reports whether a VolumeAttachment is attached and must stay attached, and the driver lists the nodes of its volumes.
func canDrift(d attach.Driver, va *storagev1.VolumeAttachment) bool {
	can := d.Capabilities
	return can.PublishUnpublish && can.ListPublishedNodes && !d.NoAttach && va.Status.Attached && va.DeletionTimestamp == nil
}

// isMissing reports whether a listing does not have an attached volume on its node. It reports that only while the node exists: a
// volume is never forced onto a node that is gone (kubernetes-csi/external-attacher issue 215). The error says why they cannot be
// compared.
func isMissing(d attach.Driver, f attach.Inputs, p csiclient.Published) (bool, error) {
	registered, ok := attach.NodeID(f.CSINode, d.Name)
	if pv := f.PersistentVolume; !canDrift(d, f.VolumeAttachment) || !ok || pv != nil && pv.Deleted != nil {
		return false, nil // the volume could not be attached again
	}
	// The driver may still list the noted node ID of a node that has another node ID now. To publish the volume to the new node ID
	// would be wrong then.
	noted := cmp.Or(attach.NotedTarget(f.VolumeAttachment).NodeID, registered)
	for _, nodeID := range slices.Compact([]string{registered, noted}) {
		handle, err := d.AttachedAs(f, nodeID)
		if err != nil {
			return false, err
		}
		if nodes := p[handle]; nodes.Unknown || nodes.Has(nodeID) {
			return false, nil
		}
	}
	return true, nil
}

// listed reports whether a listing has the volume of a VolumeAttachment at its noted target.
func listed(d attach.Driver, f attach.Inputs, p csiclient.Published) bool {
	at := attach.NotedTarget(f.VolumeAttachment)
	if at.NodeID == "" || at.VolumeHandle == "" {
		return false
	}
	handle, err := d.ListedAs(f, at.VolumeHandle, at.NodeID)
	return err == nil && p[handle].Has(at.NodeID)
}
