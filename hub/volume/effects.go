package volume

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

// EffectKind is a kind of step to the outside.
type EffectKind int8

const (
	Finished      EffectKind = iota // nothing more to do
	FindOwners                      // read who else owns the publication at the target
	ReadSecret                      // read the Secret that the publish needs
	AddFinalizers                   // write finalizers and notes
	Publish                         // call ControllerPublishVolume
	MarkAttached                    // write the status
	Unpublish                       // call ControllerUnpublishVolume
	Disown                          // make the publication at the target unowned, to be detached later
	Release                         // remove the finalizer from the VolumeAttachment
	MarkDetached                    // write the status
	LookAgain                       // end the run: it is not known who owns the publication
)

// Effect is one step to the outside.
type Effect struct {
	Kind   EffectKind
	Target attach.Target
}

// Ownership is whether a VolumeAttachment other than a claim's owns the publication of a volume at a target.
// Ordered by precedence, lowest first.
type Ownership int8

const (
	NotRead Ownership = iota // the owners were not read
	NoOwner                  // no VolumeAttachment owns it
	Wanted                   // a VolumeAttachment wants the volume there, and is not known to have called the driver
	Unclear                  // not known now
	Owned                    // a VolumeAttachment whose deletion detaches the volume
)

// Result is how an effect has ended.
type Result int8

const (
	Succeeded Result = iota
	Failed           // answered with an error
	NoPlace          // of Publish: answered that the node has as many volumes as it can have
	NotDone          // not called or written, or the answer was lost with the connection
	Rejected         // the API server will never accept the write
)

// Outcome is the result of an effect, with its values.
type Outcome struct {
	Result  Result
	Owner   Ownership         // of FindOwners
	Alive   bool              // after Release: the object still exists
	Context map[string]string // of Publish, to be recorded in the status
	Secrets map[string]string // of Publish
}

// Run is one run on a claim: the plan for its objects as they are now, which is made again before each effect, and what the
// run itself has found out. It is a plain value.
type Run struct {
	Plan attach.Plan

	owner    Ownership     // of the publication at ownerAt
	ownerAt  attach.Target // for which the owners were read last
	secret   secretOf      // that was read
	giveUp   bool          // the driver has refused to unpublish at the previous target often enough
	released bool
	alive    bool // the object still exists after the release
	marked   bool // the status was written
}

// secretOf names the Secret of a publish.
type secretOf struct {
	target attach.Target
	ref    corev1.SecretReference
}

// hasSecret reports whether the run has read the Secret that its plan names, or needs none.
func (r *Run) hasSecret() bool {
	return r.Plan.SecretRef == nil || r.secret == secretOf{r.Plan.Target, *r.Plan.SecretRef}
}

// ownerOf returns who owns the publication at a target, as far as the run has read it.
func (r *Run) ownerOf(t attach.Target) Ownership {
	if t != r.ownerAt {
		return NotRead
	}
	return r.owner
}

// Released reports whether the run has removed the finalizer: no plan is made any more then.
func (r *Run) Released() bool { return r.released }

// previousTries is the number of refused unpublishes at the previous target after which a detach goes on without
// it. With a driver that hangs, each try takes the timeout. An attach goes on after one try (csi-attacher
// makes no call for the previous node ID at all). A call that ends at its deadline or with ABORTED is a try too:
// otherwise a driver that hangs would keep an attach waiting for ever. Nothing is lost by that: the publication
// at the previous target is unowned then, and is tried again until the driver unpublishes it.
const previousTries = 3

// next returns the next effect of a run. It is pure. The cases are asked from top to bottom.
func (c *Claim) next(r Run) Effect {
	p, b := &r.Plan, &c.publication
	attaching := p.Operation == attach.Attaching
	previous := p.Target.VolumeHandle != "" && b.MayBePublished() && b.Target != p.Target
	calls := p.Publish != nil && (b.Belief != Published || b.Target != p.Target)
	switch {
	// The end of a detach. The finalizer goes before the status is written: as long as the status says "attached", nobody
	// attaches the volume elsewhere (external-attacher issue 587). An object that is gone needs no status.
	case r.released && r.alive && !r.marked:
		return Effect{MarkDetached, p.Target}
	case r.released, p.Operation == attach.Idle:
		return Effect{Kind: Finished}
	// An object that is not being deleted stays, and must not say "attached" while its volume is not.
	case p.StatusFirst:
		return Effect{MarkDetached, p.Target}

	// The previous target. Other processes find it by the note alone: the unpublish comes before the note is replaced, or
	// removed with the finalizer. A VolumeAttachment that wants the volume there publishes it again.
	case previous && r.ownerOf(b.Target) == NotRead:
		return Effect{FindOwners, b.Target}
	case previous && (r.giveUp || r.owner > Wanted || r.owner == Wanted && attaching):
		return Effect{Disown, b.Target}
	case previous:
		return Effect{Unpublish, b.Target}

	// An attach. After any failure the finalizers stay: only an unpublish proves that a volume is detached.
	case attaching && calls && !r.hasSecret(): // before anything is written
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
	case p.Unpublish == nil, b.isUnpublished(p.Target), r.ownerOf(p.Target) == Owned:
		return Effect{Release, p.Target}
	case r.ownerOf(p.Target) == NotRead:
		return Effect{FindOwners, p.Target}
	case r.owner == Unclear:
		return Effect{LookAgain, p.Target}
	}
	return Effect{Unpublish, p.Target}
}

// start notes that a publish begins. It is pure.
func (c *Claim) start(p attach.Plan) {
	c.forgetDisowned(p.Target)
	c.lost = c.lost || c.publication.Belief == Unpublished && c.seen.attached // until the status has the new publish context
	c.publication = Publication{Record: p.Record, Belief: Uncertain, Secrets: c.publication.Secrets}
}

// apply notes how an effect has ended. It is pure: it changes only the claim and the run.
func (c *Claim) apply(r *Run, e Effect, o Outcome) {
	ok := o.Result == Succeeded
	switch e.Kind {
	case FindOwners:
		if ok { // else they are read again: to skip the call would leave the volume attached
			r.owner, r.ownerAt = o.Owner, e.Target
		}
	case ReadSecret:
		if ok {
			r.secret = secretOf{e.Target, *r.Plan.SecretRef}
		}
	case Publish:
		if ok {
			c.publication.Belief, c.publication.Context, c.publication.Secrets = Published, o.Context, o.Secrets
		}
		c.publication.NodeFull = o.Result == NoPlace
	case MarkAttached:
		switch {
		case ok:
			c.lost = false
			if c.publication.Belief == Published {
				c.publication.Belief, c.publication.Context = Recorded, nil
			}
		case c.publication.Belief == Published && (o.Result == Rejected || !c.publication.keepsContext()):
			// The publish context may be too large, say. The driver may return another one to
			// another call.
			c.publication.Belief, c.publication.Context = Uncertain, nil
		}
	case Unpublish:
		c.unpublished(r, e, o.Result)
	case Disown:
		c.disowned, c.publication, c.refusals, r.giveUp = append(c.disowned, c.publication.Target), Publication{}, 0, false
	case Release:
		r.released, r.alive = ok, o.Alive
	case MarkDetached:
		r.marked = ok
	}
}

func (c *Claim) unpublished(run *Run, e Effect, r Result) {
	if r == Succeeded {
		c.publication = Publication{Record: attach.Record{Target: e.Target}, Belief: Unpublished}
		c.refusals = 0
		c.forgetDisowned(e.Target)
		return
	}
	if e.Target == run.Plan.Target || r != Failed { // Rejected: a Secret is missing, say
		return
	}
	tries := previousTries
	if run.Plan.Operation == attach.Attaching {
		tries = 1
	}
	c.refusals++
	run.giveUp = c.refusals >= tries
}

// forgetDisowned notes that the claim has no unowned publication at a target any more.
func (c *Claim) forgetDisowned(t attach.Target) {
	c.disowned = slices.DeleteFunc(c.disowned, func(disowned attach.Target) bool { return disowned == t })
}

// Restore takes the record of a claim's objects as its publication, if this process knows nothing itself.
func (t *Table) Restore(c *Claim, r attach.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !slices.Contains(c.disowned, r.Target) {
		c.publication.restore(r)
	}
}

// Believed returns a copy of a claim's publication.
func (t *Table) Believed(c *Claim) Publication {
	t.mu.Lock()
	defer t.mu.Unlock()
	return c.publication
}

// NextEffect returns the next effect of a run.
func (t *Table) NextEffect(c *Claim, r Run) Effect {
	t.mu.Lock()
	defer t.mu.Unlock()
	return c.next(r)
}

// Start notes that an effect begins: from now on it may have happened, whatever the answer.
func (t *Table) Start(c *Claim, r Run, e Effect) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e.Kind {
	case Publish:
		c.start(r.Plan)
		t.resolve(e.Target) // the claim owns the publication now
	case Release:
		if c.gone.IsZero() { // before the event of the deletion, see WasReleased
			t.released[c.UID] = true
		}
		if r.owner == Owned && c.publication.Target == e.Target {
			c.publication = Publication{} // the other VolumeAttachment detaches it
		}
	}
}

// Apply notes how an effect has ended.
func (t *Table) Apply(c *Claim, r *Run, e Effect, o Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := c.publication
	c.apply(r, e, o)
	switch {
	case e.Kind == Disown:
		t.disown(c.Identity, before)
	case e.Kind == Publish && o.Result == NoPlace:
		t.Queue.RefusedLocked(queue.ClaimKey(c.Name))
	case e.Kind == Publish && o.Result == Succeeded:
		t.Queue.PublishedLocked(queue.ClaimKey(c.Name))
	case e.Kind == Unpublish && o.Result == Succeeded:
		t.resolve(e.Target)
		t.Queue.DetachedLocked(e.Target.VolumeHandle, c.Node)
	case e.Kind == Release && o.Result != Succeeded:
		delete(t.released, c.UID)
		c.unsure = true
	case e.Kind == MarkAttached && o.Result == NotDone:
		c.unsure = true
	}
}
