package volume

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

// Effect is one step to the outside.
type Effect struct {
	Kind   EffectKind
	Target attach.Target
}

// EffectKind is a kind of step to the outside.
type EffectKind int8

const (
	Finished        EffectKind = iota // nothing more to do
	FindOwners                        // read who else owns the publication at the target
	ReadSecret                        // read the Secret that the publish needs
	AddFinalizers                     // write finalizers and notes
	Publish                           // call ControllerPublishVolume
	MarkAttached                      // write the status
	Unpublish                         // call ControllerUnpublishVolume
	Disown                            // make the publication at the target dangling, to be detached later
	RemoveFinalizer                   // remove the finalizer from the VolumeAttachment
	MarkDetached                      // write the status
	LookAgain                         // end the run: it is not known who owns the publication
)

// Writes reports whether an effect writes objects. A run that succeeds ends with such an effect.
func (k EffectKind) Writes() bool {
	return k == AddFinalizers || k == MarkAttached || k == RemoveFinalizer || k == MarkDetached
}

// Calls reports whether an effect calls the driver.
func (k EffectKind) Calls() bool { return k == Publish || k == Unpublish }

// Ownership is whether a VolumeAttachment other than the one that is worked on owns the publication of a volume at a target.
// Ordered by precedence, lowest first.
type Ownership int8

const (
	NotRead   Ownership = iota // the owners were not read
	NoOwner                    // no VolumeAttachment owns it
	Requested                  // a VolumeAttachment requires the volume there, and is not known to have called the driver
	Unclear                    // not known now
	Owned                      // a VolumeAttachment whose deletion detaches the volume
)

// Result is how an effect has ended.
type Result int8

const (
	Succeeded Result = iota
	Failed           // answered with an error
	NodeFull         // of Publish: answered that the node has as many volumes as it can have
	NotDone          // not called or written, or the answer was lost with the connection
	Rejected         // the API server will never accept the write
)

// Outcome is the result of an effect, with its values.
type Outcome struct {
	Result  Result
	Owner   Ownership         // of FindOwners
	Alive   bool              // after RemoveFinalizer: the object still exists
	Context map[string]string // of Publish, to be recorded in the status
	Secrets map[string]string // of Publish
}

// Run is one run on a VolumeAttachment: the plan for its objects as they are now, which is made again before each effect, and what
// the run itself has found out. It is a plain value.
type Run struct {
	Plan    attach.Plan
	Removed bool // the run has removed the finalizer: no plan is made any more

	owner   Ownership              // of the publication at ownerAt
	ownerAt attach.Target          // for which the owners were read last
	secret  corev1.SecretReference // that was read; API servers accept none without a name
	giveUp  bool                   // the driver has refused to unpublish at the previous target often enough
	marked  bool                   // the status says that the volume is detached, or the object is gone
}

// ownerOf returns who owns the publication at a target, as far as the run has read it.
func (r *Run) ownerOf(t attach.Target) Ownership {
	if t != r.ownerAt {
		return NotRead
	}
	return r.owner
}

// previousTries is the number of refused unpublishes at the previous target after which a detach goes on without
// it. With a driver that hangs, each try takes the timeout. An attach goes on after one try (csi-attacher
// makes no call for the previous node ID at all). A call that ends at its deadline or with ABORTED is a try too:
// otherwise a driver that hangs would keep an attach waiting for ever. Nothing is lost by that: the publication
// at the previous target is dangling then, and is tried again until the driver unpublishes it.
const previousTries = 3

// next returns the next effect of a run. It is pure. The cases are asked from top to bottom.
func (a *Attachment) next(r Run) Effect {
	p, b := &r.Plan, &a.Publication
	attaching := p.Operation == attach.Attaching
	previous := p.Target.VolumeHandle != "" && b.MayBePublished() && b.Target != p.Target
	calls := p.Publish != nil && (b.Belief != Published || b.Target != p.Target)
	switch {
	// The end of a detach. The finalizer goes before the status is written: as long as the status says "attached", nobody
	// attaches the volume elsewhere (external-attacher issue 587). An object that is gone needs no status.
	case r.Removed && !r.marked:
		return Effect{MarkDetached, p.Target}
	case r.Removed, p.Operation == attach.Idle:
		return Effect{Kind: Finished}
	// An object that is not being deleted stays, and must not say "attached" while its volume is not.
	case p.StatusFirst:
		return Effect{MarkDetached, p.Target}

	// The previous target. Other processes find it by the note alone: the unpublish comes before the note is replaced, or
	// removed with the finalizer. A VolumeAttachment that requires the volume there publishes it again.
	case previous && r.ownerOf(b.Target) == NotRead:
		return Effect{FindOwners, b.Target}
	case previous && (r.giveUp || r.owner > Requested || r.owner == Requested && attaching):
		return Effect{Disown, b.Target}
	case previous:
		return Effect{Unpublish, b.Target}

	// An attach. After any failure the finalizers stay: only an unpublish proves that a volume is detached.
	case attaching && calls && p.SecretRef != nil && r.secret != *p.SecretRef: // before anything is written
		return Effect{ReadSecret, p.Target}
	case attaching && (p.VolumeFinalizer != nil || p.AttachmentFinalizer != nil): // also if somebody has removed one since the call
		return Effect{AddFinalizers, p.Target}
	case attaching && calls:
		return Effect{Publish, p.Target}
	case attaching && p.MarkAttached:
		return Effect{MarkAttached, p.Target}
	case attaching:
		return Effect{Kind: Finished}

	// A detach. Only a successful unpublish lets the finalizer go, or another owner, whose deletion detaches the volume.
	case p.Target == attach.Target{}, b.Belief == Unpublished && b.Target == p.Target, r.ownerOf(p.Target) == Owned:
		return Effect{RemoveFinalizer, p.Target}
	case r.ownerOf(p.Target) == NotRead:
		return Effect{FindOwners, p.Target}
	case r.owner == Unclear:
		return Effect{LookAgain, p.Target}
	}
	return Effect{Unpublish, p.Target}
}

// NextEffect returns the next effect of a run.
func (t *Table) NextEffect(a *Attachment, r Run) Effect {
	defer t.lock()()
	return a.next(r)
}

// Start notes that an effect begins: from now on it may have happened, whatever the answer.
func (t *Table) Start(a *Attachment, r Run, e Effect) {
	defer t.lock()()
	switch e.Kind {
	case Publish:
		t.resolve(e.Target) // the VolumeAttachment owns the publication now
		a.forgetDisowned(e.Target)
		a.Lost = a.Lost || a.seen.attached // until the status has the new publish context
		a.Publication = Publication{Record: r.Plan.Record, Belief: Uncertain, Secrets: a.Secrets}
	case RemoveFinalizer:
		if a.gone.IsZero() { // before the event of the deletion, see Table.released
			t.released[a.UID] = true
		}
		if r.owner == Owned && a.Target == e.Target {
			a.Publication = Publication{} // the other VolumeAttachment detaches it
		}
	}
}

// Apply notes how an effect has ended.
func (t *Table) Apply(a *Attachment, r *Run, e Effect, o Outcome) {
	defer t.lock()()
	ok, key := o.Result == Succeeded, queue.AttachmentKey(a.Name)
	a.Unsure = a.Unsure || o.Result == NotDone && e.Kind.Writes()
	switch e.Kind {
	case FindOwners:
		if ok { // else they are read again: to skip the call would leave the volume attached
			r.owner, r.ownerAt = o.Owner, e.Target
		}
	case ReadSecret:
		if ok {
			r.secret = *r.Plan.SecretRef
		}
	case Publish:
		a.NodeFull = o.Result == NodeFull
		if ok {
			a.Belief, a.Context, a.Secrets, a.Lost = Published, o.Context, o.Secrets, a.Lost || a.seen.attached // as Start
		}
		if ok || a.NodeFull {
			t.Queue.AnsweredLocked(key, a.NodeFull)
		}
	case MarkAttached:
		switch published := a.Belief == Published; {
		case ok:
			a.Lost = false
			if published {
				a.Belief, a.Context = Recorded, nil
			}
		case published && o.Result == Rejected:
			// The publish context may be too large, say. The driver may return another one to
			// another call.
			a.Belief, a.Context = Uncertain, nil
		}
	case Unpublish:
		switch {
		case ok:
			a.Publication, a.refusals = Publication{Record: attach.Record{Target: e.Target}, Belief: Unpublished}, 0
			a.forgetDisowned(e.Target)
			t.resolve(e.Target)
			t.Queue.DetachedLocked(e.Target.VolumeHandle, a.Node)
		case e.Target != r.Plan.Target && o.Result == Failed: // Rejected: a Secret is missing, say
			a.refusals++
			r.giveUp = a.refusals >= previousTries || r.Plan.Operation == attach.Attaching
		}
	case Disown:
		t.disown(a.Identity, a.Publication)
		a.Disowned, a.Publication, a.refusals, r.giveUp = append(a.Disowned, e.Target), Publication{}, 0, false
	case RemoveFinalizer:
		r.Removed, r.marked = ok, r.marked || ok && !o.Alive
		if !ok {
			delete(t.released, a.UID)
		}
	case MarkDetached:
		r.marked = ok
	}
}

// forgetDisowned notes that there is no dangling publication at a target any more.
func (a *Attachment) forgetDisowned(target attach.Target) {
	a.Disowned = slices.DeleteFunc(slices.Clone(a.Disowned), func(t attach.Target) bool { return t == target })
}
