package drift

import (
	"context"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// compare acts on the VolumeAttachments that say otherwise than a listing: those that were settled before it and have not changed
// since, and those whose repair goes on. It takes those that have not changed out of l.before.
func (w *Watch) compare(ctx context.Context, l listing) {
	listings := map[types.UID]int{}
	for _, va := range l.after {
		before, working := l.before[va.Name], w.Table.Queue.Has(queue.AttachmentKey(va.Name))
		same := before != nil && before.UID == va.UID && before.ResourceVersion == va.ResourceVersion
		if same {
			delete(l.before, va.Name)
		}
		settled := same && !working && l.driver.RequiredOperation(va) == attach.Idle
		if !settled && !working {
			continue
		}
		switch present, missing := find(l.driver, w.Overlay.Inputs(va), l.published); {
		case present && w.Table.Look(va.Name, va.UID).Lost:
			w.endRepair(va)
		case present && va.Status.AttachError != nil && !working:
			if err := w.Writer().ForgetError(ctx, va, attach.Attaching); err != nil {
				w.VolumeLogger(va).V(2).Info("Failed to remove the attachError of a volume that ListVolumes reports as attached", "err", err)
			}
		case missing && settled:
			n := w.missing[va.UID] + 1
			listings[va.UID] = n
			if n%2 == 0 { // an attach since the last time counts anew
				w.repair(va, n == 2)
			} else {
				w.confirm = true
			}
		}
	}
	w.missing = listings
}

// repair reports a volume that two listings in a row do not have on its node, and has it attached again if drift.action says so.
func (w *Watch) repair(va *storagev1.VolumeAttachment, isNew bool) {
	action, key := w.Settings().Drift.Action, queue.AttachmentKey(va.Name)
	if isNew {
		end := "attaching it again"
		if action != registry.DriftReattach {
			end = "not attaching it again because drift.action is " + string(action)
		}
		w.Metrics.Drift("missing", string(action))
		w.Warn(va, driftDetected, "ListVolumes no longer reports the volume on this node; "+end)
		w.Log(w.VolumeLogger(va), true, "ListVolumes no longer reports the volume on this node", "kind", "missing", "action", action)
	}
	if action == registry.DriftReattach && !w.Table.Queue.Has(key) && w.Overlay.Newest(va).ResourceVersion == va.ResourceVersion { // compare may have waited for a write
		w.Table.Open(va)
		w.Table.SetLost(va, true)
		w.Table.Queue.Add(key, queue.DriftLane, w.DestinationOf(va, attach.Attaching))
	}
}

// endRepair ends the repair of a volume that another client or the storage system itself has attached again.
func (w *Watch) endRepair(va *storagev1.VolumeAttachment) {
	key := queue.AttachmentKey(va.Name)
	if p, _ := w.Table.Queue.Look(key); p.State == queue.Running && p.Lane != queue.DetachLane {
		return // its publish may be in flight: the status needs the new publish context
	}
	if w.Table.SetLost(va, false); !w.Table.Look(va.Name, va.UID).Lost {
		w.Log(w.VolumeLogger(va), true, "ListVolumes reports the volume on this node again, not attaching it again")
		w.Table.Queue.RetryNow(key)
	}
}

// find reports whether a listing has the volume of an attached VolumeAttachment on its node, and whether it is missing there; neither
// if the VolumeAttachment is being deleted, or the listing does not say. A volume is missing only if it could be attached again: never
// on a node that is gone (kubernetes-csi/external-attacher issue 215).
func find(d attach.Driver, f attach.Inputs, p csiclient.Published) (present, missing bool) {
	va, handle := f.VolumeAttachment, attach.HandleOf(f)
	if !va.Status.Attached || va.DeletionTimestamp != nil {
		return false, false
	}
	// The driver may still list the noted node ID of a node that has another node ID now. To publish the volume to the new node ID
	// would be wrong then.
	registered, _ := attach.NodeID(f.CSINode, d.Name)
	for _, nodeID := range []string{attach.NotedTarget(va).NodeID, registered} {
		listed, err := d.ListedAs(handle, nodeID)
		if nodes := p[listed]; nodeID != "" && (err != nil || nodes.Unknown || nodes.Has(nodeID)) {
			return err == nil && nodes.Has(nodeID), false
		}
	}
	f.Lost = true
	again, err := d.Decide(f)
	return false, err == nil && again.Publish != nil
}
