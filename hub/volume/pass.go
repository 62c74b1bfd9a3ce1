package volume

import (
	"slices"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

// EffectKind is a kind of step to the outside.
type EffectKind int8

const (
	Finished      EffectKind = iota // nothing more to do in this pass
	FindOwners                      // read who else owns the publication at the target
	ReadSecret                      // read the Secret that the publish needs
	AddFinalizers                   // write finalizers and notes
	Publish                         // call ControllerPublishVolume
	MarkAttached                    // write the status
	Unpublish                       // call ControllerUnpublishVolume
	Disown                          // make the publication at the target unowned, to be detached later
	Release                         // remove the finalizer from the VolumeAttachment
	MarkDetached                    // write the status of an object that finalizers of others keep alive
	LookAgain                       // end the pass: it is not known who owns the publication
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

// Pass is the work of one run on a claim: the plan for its objects when the run began, and the effects so far. It
// is a plain value. After a pass that ends early, a new pass begins from the objects and the claim's publication.
type Pass struct {
	Operation       attach.Operation
	Target          attach.Target // of the call; empty: the pass has none
	Record          attach.Record // of the publication that a publish makes
	Calls           bool          // the driver has to be called
	NeedsFinalizers bool          // finalizers or notes are missing
	Marks           bool          // the status has to be written
	StatusFirst     bool          // of a detach: the status has to be written before all else

	previous      Ownership // at the claim's previous target, if it has one
	giveUp        bool      // the driver has refused to unpublish at the previous target often enough
	owner         Ownership // at Target, for a detach
	hasSecret     bool
	hasFinalizers bool
	marked        bool
	released      bool
	alive         bool
}

// NewPass returns the pass that carries out a plan.
func NewPass(p attach.Plan) Pass {
	return Pass{
		Operation:       p.Operation,
		Target:          p.Target,
		Record:          p.Record(),
		Calls:           p.Publish != nil || p.Unpublish != nil,
		NeedsFinalizers: p.VolumeFinalizer != nil || p.AttachmentFinalizer != nil,
		Marks:           p.MarkAttached,
		StatusFirst:     p.StatusFirst,
		released:        p.Release == nil,
	}
}

// previousTries is the number of refused unpublishes at the previous target after which a detach goes on without
// it. With a driver that hangs, each try takes the timeout. An attach goes on after one try (csi-attacher
// makes no call for the previous node ID at all). A call that ends at its deadline or with ABORTED is a try too:
// otherwise a driver that hangs would keep an attach waiting for ever. Nothing is lost by that: the publication
// at the previous target is unowned then, and is tried again until the driver unpublishes it.
const previousTries = 3

// nextEffect returns the next effect of a pass. It is pure.
func (c *Claim) nextEffect(p Pass) Effect {
	if p.StatusFirst && !p.marked {
		return Effect{MarkDetached, p.Target}
	}
	believed := c.publication
	if p.Target.VolumeHandle != "" && believed.MayBePublished() && believed.Target != p.Target {
		// Other processes find the previous target by the note alone: the unpublish comes before the
		// note is replaced, or removed with the finalizer.
		switch {
		case p.previous == NotRead:
			return Effect{FindOwners, believed.Target}
		case p.giveUp, p.previous > Wanted, p.previous == Wanted && p.Operation == attach.Attaching:
			return Effect{Disown, believed.Target}
		}
		return Effect{Unpublish, believed.Target} // a VolumeAttachment that wants it there publishes it again
	}
	if p.Operation == attach.Attaching {
		return c.nextOfAttach(p)
	}
	return c.nextOfDetach(p)
}

// nextOfAttach returns the effects of an attach in this order: finalizers and notes, the call, the status. After
// any failure the finalizers stay: only an unpublish proves that a volume is detached.
func (c *Claim) nextOfAttach(p Pass) Effect {
	published := c.publication.Belief == Published && c.publication.Target == p.Target
	switch {
	case p.Calls && !published && !p.marked && !p.hasSecret:
		return Effect{ReadSecret, p.Target}
	case p.NeedsFinalizers && !p.hasFinalizers && !p.marked: // also if somebody has removed a finalizer since the call
		return Effect{AddFinalizers, p.Target}
	case p.Calls && !published && !p.marked:
		return Effect{Publish, p.Target}
	case p.Marks && !p.marked:
		return Effect{MarkAttached, p.Target}
	}
	return Effect{Kind: Finished}
}

// nextOfDetach returns the effects of a detach in this order: the call, the removal of the finalizer, and the
// status if the object still exists. The finalizer is removed before the status is written: as long as the
// status says "attached", nobody attaches the volume elsewhere (external-attacher issue 587), and an object that
// is gone needs no status. An object that is not being deleted stays, and must not say "attached" while its volume is
// not: then the status comes first (StatusFirst).
func (c *Claim) nextOfDetach(p Pass) Effect {
	switch {
	case p.released && p.alive && !p.marked:
		return Effect{MarkDetached, p.Target}
	case p.released:
		return Effect{Kind: Finished}
	case !p.Calls || c.publication.isUnpublished(p.Target) || p.owner == Owned:
		return Effect{Release, p.Target}
	case p.owner == NotRead:
		return Effect{FindOwners, p.Target}
	case p.owner == Unclear:
		return Effect{LookAgain, p.Target}
	}
	return Effect{Unpublish, p.Target}
}

// start notes that a publish begins. It is pure.
func (c *Claim) start(p Pass) {
	c.forgetDisowned(p.Target)
	c.publication = Publication{Record: p.Record, Belief: Uncertain, Secrets: c.publication.Secrets}
}

// apply notes how an effect has ended. It is pure: it changes only the claim and the pass.
func (c *Claim) apply(p *Pass, e Effect, o Outcome) {
	ok := o.Result == Succeeded
	switch e.Kind {
	case FindOwners:
		switch {
		case !ok: // they are read again: to skip the call would leave the volume attached
		case e.Target == p.Target:
			p.owner = o.Owner
		default:
			p.previous = o.Owner
		}
	case ReadSecret:
		p.hasSecret = ok
	case AddFinalizers:
		p.hasFinalizers = ok
	case Publish:
		if ok {
			c.publication.Belief, c.publication.Context, c.publication.Secrets = Published, o.Context, o.Secrets
		}
		c.publication.NodeFull = o.Result == NoPlace
	case MarkAttached:
		switch {
		case ok:
			p.marked = true
			if p.Calls {
				c.publication.Belief, c.publication.Context = Recorded, nil
			}
		case c.publication.Belief == Published && (o.Result == Rejected || !c.publication.keepsContext()):
			// The publish context may be too large, say. The driver may return another one to
			// another call.
			c.publication.Belief, c.publication.Context = Uncertain, nil
		}
	case Unpublish:
		c.unpublished(p, e, o.Result)
	case Disown:
		c.disowned, c.publication, c.refusals = append(c.disowned, c.publication.Target), Publication{}, 0
	case Release:
		p.released, p.alive = ok, o.Alive
	case MarkDetached:
		p.marked = ok
	}
}

func (c *Claim) unpublished(p *Pass, e Effect, r Result) {
	if r == Succeeded {
		c.publication = Publication{Record: attach.Record{Target: e.Target}, Belief: Unpublished}
		c.refusals = 0
		c.forgetDisowned(e.Target)
		return
	}
	if e.Target == p.Target || r != Failed { // Rejected: a Secret is missing, say
		return
	}
	tries := previousTries
	if p.Operation == attach.Attaching {
		tries = 1
	}
	c.refusals++
	p.giveUp = c.refusals >= tries
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

// NextEffect returns the next effect of a pass.
func (t *Table) NextEffect(c *Claim, p Pass) Effect {
	t.mu.Lock()
	defer t.mu.Unlock()
	return c.nextEffect(p)
}

// Start notes that an effect begins: from now on it may have happened, whatever the answer.
func (t *Table) Start(c *Claim, p Pass, e Effect) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e.Kind {
	case Publish:
		c.start(p)
		t.resolve(e.Target) // the claim owns the publication now
	case Release:
		if c.gone.IsZero() { // before the event of the deletion, see WasReleased
			t.released[c.UID] = true
		}
		if p.owner == Owned && c.publication.Target == p.Target {
			c.publication = Publication{} // the other VolumeAttachment detaches it
		}
	}
}

// Apply notes how an effect has ended.
func (t *Table) Apply(c *Claim, p *Pass, e Effect, o Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := c.publication
	c.apply(p, e, o)
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
