package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// execution carries out a plan, effect by effect: volume.Table returns the next effect, and takes its outcome.
// The execution decides nothing itself.
type execution struct {
	leader  *leader
	entry   *queue.Item
	caller  *callerOf // for the entry
	claim   *volume.Claim
	object  *storagev1.VolumeAttachment
	plan    attach.Plan
	pass    volume.Pass
	secrets map[string]string
	alive   *storagev1.VolumeAttachment // after the release of the finalizer, if it still exists
}

// execute carries out a plan for a claim. It stops at the first error. After errBlocked the worker must not use
// the entry any more.
func (l *leader) execute(ctx context.Context, e *queue.Item, va *storagev1.VolumeAttachment, c *volume.Claim, plan attach.Plan) error {
	x := &execution{leader: l, entry: e, caller: &callerOf{l, e.Key}, claim: c, object: va, plan: plan, pass: volume.NewPass(plan)}
	if plan.Publish != nil && plan.SingleNode {
		l.readOthers(ctx, va)
	}
	var reserved attach.Target
	asked := false // right before the publish: a detach elsewhere may have become due during the writes
	for {
		effect := l.table.NextEffect(c, x.pass)
		if effect.Kind == volume.Finished {
			return nil
		}
		if at := effect.Target; at.VolumeHandle != "" && (at != reserved || effect.Kind == volume.Publish && !asked) {
			if !l.queue.MayCall(e, x.place(at)) {
				return errBlocked
			}
			reserved, asked = at, effect.Kind == volume.Publish
			continue // the claim may have changed while it waited
		}
		l.table.Start(c, x.pass, effect)
		outcome, err := x.do(ctx, effect)
		l.table.Apply(c, &x.pass, effect, outcome)
		if err != nil && l.table.NextEffect(c, x.pass).Kind != volume.Disown {
			return err
		}
	}
}

// place returns the place of a call at a target.
func (x *execution) place(t attach.Target) queue.Place {
	p := queue.Place{Target: t, Node: x.object.Spec.NodeName}
	if t == x.plan.Target {
		p.Shared = !x.plan.SingleNode
	} else {
		p.Shared = x.leader.isSurelyShared(x.claim.Identity, x.leader.table.Believed(x.claim).Record)
	}
	return p
}

// do carries out one effect, and returns its outcome.
func (x *execution) do(ctx context.Context, effect volume.Effect) (volume.Outcome, error) {
	l := x.leader
	a := l.attacher()
	a.Controller = x.caller
	var o volume.Outcome
	var err error
	switch effect.Kind {
	case volume.FindOwners:
		o.Owner, err = l.ownersElsewhere(ctx, x.claim.Identity, x.plan.Operation, effect.Target)
		if err == nil && o.Owner == volume.Owned && x.isAttachedByNow() {
			err = errAttachedByNow
		}
	case volume.ReadSecret:
		x.secrets, err = a.Secrets(ctx, x.plan.SecretRef)
	case volume.AddFinalizers:
		err = a.AddFinalizers(ctx, x.plan)
	case volume.Publish:
		o.Context, err = a.Publish(ctx, x.plan, x.secrets)
		o.Secrets = x.secrets
		if isNodeFull(err) {
			o.Result = volume.NoPlace
			return o, err
		}
	case volume.MarkAttached:
		if err = x.checkNodeID(ctx); err == nil {
			err = a.MarkAttached(ctx, x.plan, l.table.Believed(x.claim).Context)
		}
	case volume.Unpublish:
		now := x.plan.SecretRef
		if effect.Target.VolumeHandle != x.plan.Target.VolumeHandle {
			now = nil // the PersistentVolume was recreated: its Secret is that of another volume
		}
		if x.plan.Operation == attach.Detaching && x.object.DeletionTimestamp == nil {
			err = l.checkUnused(ctx, x.object, effect.Target)
		}
		if err == nil {
			err = x.caller.unpublish(ctx, l.table.Believed(x.claim), effect.Target, now)
		}
	case volume.Disown:
		l.log.line(klog.FromContext(ctx), true, "The volume stays attached at its previous target, detaching it later",
			"previousVolumeHandle", effect.Target.VolumeHandle, "previousNodeID", effect.Target.NodeID)
	case volume.Release:
		x.alive, err = a.Release(ctx, x.plan)
		o.Alive = x.alive != nil
	case volume.MarkDetached:
		err = a.MarkDetached(ctx, cmp.Or(x.alive, x.object))
	case volume.LookAgain:
		err = errOwnerUnclear
	}
	o.Result = l.resultOf(err, x.entry)
	return o, err
}

// checkNodeID returns errNodeIDChanged if the node ID of the plan is no longer valid. It reads the CSINode only if the
// cache shows another node ID: the cache may be behind the plan.
func (x *execution) checkNodeID(ctx context.Context) error {
	decider, cluster, node := x.leader.decider(), x.leader.cluster, x.object.Spec.NodeName
	if decider.IsCurrent(x.plan, cluster.CSINode(node)) {
		return nil
	}
	now, err := cluster.ReadCSINode(ctx, node)
	if err != nil {
		return fmt.Errorf("read csinode %q: %w", node, err)
	}
	if !decider.IsCurrent(x.plan, now) {
		return errNodeIDChanged
	}
	return nil
}

// isAttachedByNow reports whether the VolumeAttachment, which was not attached when the run began, is attached.
func (x *execution) isAttachedByNow() bool {
	now := x.leader.overlay.Attachment(x.object.Name)
	return now != nil && now.Status.Attached && !x.object.Status.Attached
}

// resultOf returns the Result of an effect that ended with an error.
func (l *leader) resultOf(err error, e *queue.Item) volume.Result {
	call := (*attach.CallError)(nil)
	switch {
	case err == nil:
		return volume.Succeeded
	case attach.Rejected(err):
		return volume.Rejected
	case isFenced(err), isDisconnected(err) && e.Retries.Disconnects < queue.DisconnectsAllowed, !errors.As(err, &call):
		return volume.NotDone
	}
	return volume.Failed
}

// unpublish calls ControllerUnpublishVolume at a target. now is the Secret that the PersistentVolume names now,
// nil for none.
func (c *callerOf) unpublish(ctx context.Context, p volume.Publication, target attach.Target, now *corev1.SecretReference) error {
	a := c.attacher()
	a.Controller = c
	secrets, err := a.UnpublishSecrets(ctx, target, p.Record, now, p.Secrets)
	if err != nil {
		return err
	}
	return a.Unpublish(ctx, target, secrets)
}

// errNodeIDChanged means that the driver registered another node ID for the node during the call.
var errNodeIDChanged = fmt.Errorf("%w: the driver has registered the node under another node ID", attach.ErrStale)

// errAttachedByNow means that the answer to the write of the status was lost: what is attached is not moved to the node ID
// that the driver has registered since.
var errAttachedByNow = fmt.Errorf("%w: the VolumeAttachment is attached at its former node ID", attach.ErrStale)

// errOwnerUnclear means that a volume is not detached because another VolumeAttachment may own it at that
// target.
var errOwnerUnclear = errors.New("another VolumeAttachment may have the volume at this node ID: this is looked at again")

// attacher returns the Attacher for the worker of an entry, without its Controller. The objects that its writes return count as seen by
// that worker.
func (l *leader) attacher() attach.Attacher {
	a := l.writer()
	a.Written = workerWrites{l.overlay, l.table}
	return a
}

// writer returns the Attacher for all others, without a Controller. The objects that its writes return do not count as seen by a
// worker: they may show a deletion, say.
func (l *leader) writer() attach.Attacher {
	return attach.Attacher{
		Writer: attach.Writer{
			Kube:    l.hub.options.Kube,
			Limit:   l.budget,
			Fence:   l.mayCall,
			Written: l.overlay,
			// If the process is stopped during a write, the write is over before another process may take
			// the lease. 0: no lease.
			Timeout: l.hub.options.LeaseDuration / 3,
		},
		CallTimeout:     l.settings().Timeout,
		MayName:         l.mayName,
		Redactor:        l.redactor,
		FinalizerWrites: l.finalizerWrites,
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
	w.table.Saw(va)
}
