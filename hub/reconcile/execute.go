package reconcile

import (
	"cmp"
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// execution is one run on a VolumeAttachment. Before each effect it looks at the objects again: volume.Table returns the next effect, and
// takes its outcome. The execution decides nothing itself.
type execution struct {
	worker     *Worker
	item       *queue.Item
	op         attach.Operation
	attachment *volume.Attachment
	object     *storagev1.VolumeAttachment // as it was looked at last
	run        volume.Run
	done       []volume.Effect
	secrets    map[string]string

	// What the API server has returned to this run (nil: there is none): the caches may be behind it.
	volume               *attach.Volume
	node                 *storagev1.CSINode
	volumeRead, nodeRead bool
}

// errUndone means that another client undoes what a run writes.
var errUndone = errors.New("another client undoes what the hub writes into the VolumeAttachment: its finalizer, its annotations or its status")

// execute carries out what a VolumeAttachment requires, effect by effect. It stops at the first error, and at an effect that it
// has made before. After errBlocked the worker must not use the item any more.
func (x *execution) execute(ctx context.Context) error {
	table := x.worker.Table
	for {
		if err := x.look(ctx); err != nil {
			return err
		}
		effect := table.NextEffect(x.attachment, x.run)
		switch {
		case effect.Kind == volume.Finished && len(x.done) == 0 && x.worker.Decider().HasStaleError(x.object):
			return x.worker.attacher(x.item.Key).ForgetError(ctx, x.object, attach.Detaching)
		case effect.Kind == volume.Finished:
			if n := len(x.done); n > 0 && !x.done[n-1].Kind.Writes() { // another client has ended it
				x.op = attach.Idle
			}
			return nil
		case effect.Kind != volume.ReadSecret && slices.Contains(x.done, effect):
			return errUndone
		}
		if effect.Kind.Calls() && !x.worker.Queue.MayCall(x.item, x.destination(effect.Target)) {
			return errBlocked
		}
		table.Start(x.attachment, x.run, effect)
		outcome, err := x.do(ctx, effect)
		table.Apply(x.attachment, &x.run, effect, outcome)
		if err != nil && table.NextEffect(x.attachment, x.run).Kind != volume.Disown {
			return err
		}
		x.done = append(x.done, effect)
	}
}

// look makes the plan for the objects as they are now. It ends the run with errBlocked if its direction has changed: by the
// lane the Queue knows what goes before what.
func (x *execution) look(ctx context.Context) error {
	w := x.worker
	if x.run.Removed {
		return nil
	}
	x.run.Plan = attach.Plan{} // Idle
	if len(x.done) > 0 {
		now := w.Overlay.Attachment(x.object.Name)
		if now == nil || now.UID != x.object.UID {
			x.op = attach.Idle // nothing has succeeded
			return nil
		}
		x.object, x.attachment = now, w.Table.Open(now)
	}
	decider := w.Decider()
	op, lane := w.Table.Required(decider, x.object)
	if op == attach.Idle {
		return nil
	}
	if (lane == queue.DetachLane) != (x.item.Lane == queue.DetachLane) {
		w.Queue.End(x.item, queue.Requeue(lane))
		return errBlocked
	}
	if err := w.checkCapability(decider, op); err != nil {
		return err
	}
	inputs, err := x.inputs(ctx)
	// What the objects record is the belief, if this process knows nothing; later the note is that of this run, which may not have called
	// yet. Also if a read has failed: an item of which nothing is known would lose its place on a full node.
	if record, ok := decider.Recorded(inputs); ok && len(x.done) == 0 {
		w.Table.Restore(x.attachment, record)
	}
	if err != nil {
		return err
	}
	if x.run.Plan, err = decider.Decide(inputs); err != nil {
		w.Table.SetLost(x.object, false) // it cannot be repaired now; the next listing finds it again
		return err
	}
	if len(x.done) == 0 && x.run.Plan.Publish != nil && x.run.Plan.Nodes != attach.MultiNode {
		w.readOthers(ctx, x.object)
	}
	return nil
}

// inputs returns what the plan is made from. What the caches may lack is read once in a run; a PersistentVolume once more after its
// finalizer was written, and the CSINode once more after the publish.
func (x *execution) inputs(ctx context.Context) (attach.Inputs, error) {
	w, va := x.worker, x.object
	believed := w.Table.Look(va.Name, va.UID)
	inputs := attach.Inputs{VolumeAttachment: va, Lost: believed.Lost, Unpublished: va.Status.Attached && believed.Belief == volume.Unpublished}
	if believed.Belief == volume.Published {
		inputs.Published = &believed.Record
	}
	var err error
	name := attach.VolumeName(va)
	inputs.PersistentVolume = w.Overlay.Volume(name)
	if name != "" && inputs.PersistentVolume == nil && (inputs.Published == nil || x.op == attach.Detaching) {
		if !x.volumeRead {
			if x.volume, err = w.Cluster.ReadVolume(ctx, name); err != nil {
				return inputs, err
			}
			x.volumeRead = true
		}
		inputs.PersistentVolume = x.volume
		if x.volume == nil && x.op == attach.Detaching {
			inputs.PersistentVolume = w.Cluster.DeletedVolume(name)
		}
	}
	if !x.nodeRead {
		if x.node, x.nodeRead, err = w.Cluster.FindCSINode(ctx, va); err != nil {
			return inputs, err
		}
	}
	inputs.CSINode = x.node
	return inputs, nil
}

// destination returns the destination of a call at a target.
func (x *execution) destination(t attach.Target) queue.Destination {
	p := queue.Destination{Target: t, Node: x.object.Spec.NodeName, Shared: x.run.Plan.Nodes == attach.MultiNode}
	if t != x.run.Plan.Target {
		p.Shared = x.worker.isSurelyShared(x.attachment.Identity, x.worker.Table.Look(x.object.Name, x.object.UID).Record)
	}
	return p
}

// do carries out one effect, and returns its outcome.
func (x *execution) do(ctx context.Context, effect volume.Effect) (volume.Outcome, error) {
	w := x.worker
	a := w.attacher(x.item.Key)
	var o volume.Outcome
	var err error
	if k := effect.Kind; k == volume.Unpublish && x.op == attach.Detaching && x.object.DeletionTimestamp == nil ||
		k == volume.MarkDetached && x.run.Plan.StatusFirst && effect.Target.VolumeHandle != "" {
		if err = w.checkUnused(ctx, x.object, effect.Target); err != nil {
			return volume.Outcome{Result: w.resultOf(err, x.item)}, err
		}
	}
	switch effect.Kind {
	case volume.FindOwners:
		o.Owner, err = w.owners(ctx, x.attachment.Identity, effect.Target, x.op == attach.Detaching)
	case volume.ReadSecret:
		x.secrets, err = a.Secrets(ctx, x.run.Plan.SecretRef)
	case volume.AddFinalizers:
		err = a.AddFinalizers(ctx, x.run.Plan)
		x.volumeRead = false // it has the finalizer now
	case volume.Publish:
		if x.run.Plan.SecretRef != nil {
			o.Secrets = x.secrets
		}
		o.Context, err = a.Publish(ctx, x.run.Plan, o.Secrets)
		x.nodeRead = false // the driver may have registered another node ID during the call
	case volume.MarkAttached:
		err = a.MarkAttached(ctx, x.object, x.run.Plan.Target, w.Table.Look(x.object.Name, x.object.UID).Context)
	case volume.Unpublish:
		now := x.run.Plan.SecretRef
		if effect.Target.VolumeHandle != x.run.Plan.Target.VolumeHandle {
			now = nil // the PersistentVolume was recreated: its Secret is that of another volume
		}
		err = w.unpublish(ctx, x.item.Key, w.Table.Look(x.object.Name, x.object.UID).Publication, effect.Target, now)
	case volume.Disown:
		w.logLine(klog.FromContext(ctx), true, "The volume stays attached at its previous target, detaching it later",
			"previousVolumeHandle", effect.Target.VolumeHandle, "previousNodeID", effect.Target.NodeID)
	case volume.RemoveFinalizer:
		var alive *storagev1.VolumeAttachment
		if alive, err = a.RemoveFinalizer(ctx, x.object); err == nil && alive == nil {
			w.Overlay.MarkDeleted(x.object) // a watch that has ended may report it a minute late
		}
		o.Alive, x.object = alive != nil, cmp.Or(alive, x.object)
	case volume.MarkDetached:
		err = a.MarkDetached(ctx, x.object)
	case volume.LookAgain:
		err = errOwnerUnclear
	}
	if o.Result = w.resultOf(err, x.item); effect.Kind == volume.Publish && isNodeFull(err) {
		o.Result = volume.NodeFull
	}
	return o, err
}

// resultOf returns the Result of an effect that ended with an error.
func (w *Worker) resultOf(err error, e *queue.Item) volume.Result {
	switch call := (*attach.CallError)(nil); {
	case err == nil:
		return volume.Succeeded
	case attach.Rejected(err):
		return volume.Rejected
	case isFenced(err), IsDisconnected(err) && e.Retries.Disconnects < queue.DisconnectsAllowed, !errors.As(err, &call):
		return volume.NotDone
	}
	return volume.Failed
}

// unpublish calls ControllerUnpublishVolume at a target for an item. now is the Secret that the PersistentVolume names now, nil for none.
func (w *Worker) unpublish(ctx context.Context, key queue.Key, p volume.Publication, target attach.Target, now *corev1.SecretReference) error {
	a := w.attacher(key)
	secrets, err := a.UnpublishSecrets(ctx, target, p.Record, now, p.Secrets)
	if err != nil {
		return err
	}
	return a.Unpublish(ctx, target, secrets)
}

// errOwnerUnclear means that a volume is not detached because another VolumeAttachment may own it at that
// target.
var errOwnerUnclear = errors.New("another VolumeAttachment may have the volume at this node ID: this is looked at again")

// attacher returns the Attacher for the worker of an item. The objects that its writes return count as seen by that worker.
func (w *Worker) attacher(key queue.Key) attach.Attacher {
	a := w.Writer()
	a.Written = workerWrites{w.Overlay, w.Table}
	a.Call = func(ctx context.Context, method string, do func(context.Context, attach.Controller) error) error {
		return w.call(ctx, key, method, do)
	}
	return a
}

// Writer returns the Attacher for all others, which makes no calls. The objects that its writes return do not count as seen by a
// worker: they may show a deletion, say.
func (w *Worker) Writer() attach.Attacher {
	return attach.Attacher{
		Writer: attach.Writer{
			Kube:    w.Kube,
			Limit:   w.budget.Wait,
			Fence:   w.mayCall,
			Written: w.Overlay,
			// If the process is stopped during a write, the write is over before another process may take
			// the lease. 0: no lease.
			Timeout:         w.WriteLimit,
			FinalizerWrites: &w.finalizerWrites,
		},
		CallTimeout: w.Settings().Timeout,
		ReadSecret:  w.ReadSecret,
		Redactor:    w.Redactor,
	}
}

// workerWrites takes the states of its own VolumeAttachment that a worker has written or read.
type workerWrites struct {
	*cache.Overlay
	table *volume.Table
}

// VolumeAttachmentWritten implements attach.Written.
func (w workerWrites) VolumeAttachmentWritten(va *storagev1.VolumeAttachment) {
	w.Overlay.VolumeAttachmentWritten(va)
	w.table.Saw(va, true)
}
