package volume

import (
	"slices"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// EffectKind is a kind of step to the outside.
type EffectKind int8

const (
	Finished     EffectKind = iota // nothing is left to do in this pass
	FindOwners                     // read who else has the volume at the target
	ReadSecret                     // read the Secret that goes with the publish
	Guard                          // write finalizers and notes
	Publish                        // call ControllerPublishVolume
	MarkAttached                   // write the status
	Unpublish                      // call ControllerUnpublishVolume
	Leave                          // leave the publication at the target unowned, to be detached later
	Release                        // remove the finalizer from the VolumeAttachment
	MarkDetached                   // write the status of one that others keep alive
	LookAgain                      // nothing now: who has the volume cannot be told
)

// Effect is one step to the outside.
type Effect struct {
	Kind   EffectKind
	Target attach.Target
}

// Ownership says who has a volume at a target, besides the claim that asks. What comes later counts
// for more.
type Ownership int8

const (
	NotRead Ownership = iota // nobody has looked
	NoOwner                  // nobody
	Wanted                   // a VolumeAttachment wants it there, and has not called the driver as far as known
	Unclear                  // it cannot be told now
	Owned                    // a VolumeAttachment has it there, and its deletion detaches it
)

// Result says how an effect has ended.
type Result int8

const (
	Succeeded Result = iota
	Failed           // answered with an error
	NotDone          // not called or written, or the answer was lost with the connection
	Rejected         // the API server does not take what was to be written, and never will
)

// Outcome is what an effect has led to.
type Outcome struct {
	Result  Result
	Owner   Ownership         // of FindOwners
	Alive   bool              // after Release: the object still exists
	Context map[string]string // of Publish, to be recorded in the status
	Secrets map[string]string // that went with the publish
}

// Pass is one look of a worker at a claim: what its objects asked for when it began, and how far
// it has come. It is a plain value. A pass that ends early is followed by a new one, which begins
// from the objects and from what the claim believes.
type Pass struct {
	Operation attach.Operation
	Target    attach.Target // of the call; empty: the pass has none
	Record    attach.Record // what a publish records
	Calls     bool          // the driver has to be called
	Guards    bool          // finalizers or notes are missing
	Marks     bool          // the status has to be written

	previous  Ownership // of the target where the claim has the volume, if that is another one
	giveUp    bool      // the driver has refused to unpublish there often enough
	owner     Ownership // of Target, for a detach
	hasSecret bool
	guarded   bool
	marked    bool
	released  bool
	alive     bool
}

// NewPass returns the pass that carries out a plan.
func NewPass(p attach.Plan) Pass {
	return Pass{
		Operation: p.Operation,
		Target:    p.Target,
		Record:    p.Record(),
		Calls:     p.Publish != nil || p.Unpublish != nil,
		Guards:    p.GuardVolume != nil || p.GuardAttachment != nil,
		Marks:     p.MarkAttached,
	}
}

// previousTries is how often a driver is asked to unpublish a volume at the previous target before
// a detach goes on without. With a driver that hangs each takes its timeout. An attach goes on
// after one answer (csi-attacher asks for the new node ID only).
const previousTries = 3

// nextEffect returns the next effect of a pass. It is pure.
func (c *Claim) nextEffect(p Pass) Effect {
	believed := c.publication
	if p.Target.VolumeHandle != "" && believed.MayBePublished() && believed.Target != p.Target {
		// The note of that target is all that other processes would find it by: the unpublish
		// comes before the note is removed with the finalizer, or replaced.
		switch {
		case p.previous == NotRead:
			return Effect{FindOwners, believed.Target}
		case p.giveUp, p.previous > Wanted, p.previous == Wanted && p.Operation == attach.Attaching:
			return Effect{Leave, believed.Target}
		}
		return Effect{Unpublish, believed.Target} // who only wants it there has it published again
	}
	if p.Operation == attach.Attaching {
		return c.nextOfAttach(p)
	}
	return c.nextOfDetach(p)
}

// nextOfAttach: finalizers and notes, the call, the status. Whatever goes wrong, the finalizers
// stay: only an unpublish proves that a volume is detached.
func (c *Claim) nextOfAttach(p Pass) Effect {
	published := c.publication.Belief == Published && c.publication.Target == p.Target
	switch {
	case p.Calls && !published && !p.marked && !p.hasSecret:
		return Effect{ReadSecret, p.Target}
	case p.Guards && !p.guarded && !p.marked: // also if somebody has taken a finalizer since the call
		return Effect{Guard, p.Target}
	case p.Calls && !published && !p.marked:
		return Effect{Publish, p.Target}
	case p.Marks && !p.marked:
		return Effect{MarkAttached, p.Target}
	}
	return Effect{Kind: Finished}
}

// nextOfDetach: the call, the finalizer, and the status if the object still lives. The finalizer goes
// first: as long as the status says attached, nobody takes the volume for free (external-attacher
// issue 587), and the status of an object that is gone need not be written.
func (c *Claim) nextOfDetach(p Pass) Effect {
	switch {
	case p.released && p.alive && !p.marked:
		return Effect{MarkDetached, p.Target}
	case p.released:
		return Effect{Kind: Finished}
	case p.Calls && !c.publication.isUnpublished(p.Target) && p.owner == NotRead:
		return Effect{FindOwners, p.Target}
	case p.Calls && !c.publication.isUnpublished(p.Target) && p.owner < Unclear:
		return Effect{Unpublish, p.Target}
	case p.Calls && !c.publication.isUnpublished(p.Target) && p.owner == Unclear:
		return Effect{LookAgain, p.Target}
	}
	return Effect{Release, p.Target}
}

// start notes that a publish begins. It is pure.
func (c *Claim) start(p Pass) {
	c.forgetLeft(p.Target)
	c.publication = Publication{Record: p.Record, Belief: Uncertain, Secrets: c.publication.Secrets}
}

// apply notes how an effect has ended. It is pure: it changes only the claim and the pass.
func (c *Claim) apply(p *Pass, e Effect, o Outcome) {
	ok := o.Result == Succeeded
	switch e.Kind {
	case FindOwners:
		switch {
		case !ok: // to be read again: the driver must not be left unasked because of that
		case e.Target == p.Target:
			p.owner = o.Owner
		default:
			p.previous = o.Owner
		}
	case ReadSecret:
		p.hasSecret = ok
	case Guard:
		p.guarded = ok
	case Publish:
		if ok {
			c.publication.Belief, c.publication.Context, c.publication.Secrets = Published, o.Context, o.Secrets
		}
	case MarkAttached:
		switch {
		case ok:
			p.marked = true
			if p.Calls {
				c.publication.Belief, c.publication.Context = Recorded, nil
			}
		case o.Result == Rejected && c.publication.Belief == Published:
			// Because of its size say. The driver may give another publish context when it is
			// asked again.
			c.publication.Belief, c.publication.Context = Uncertain, nil
		}
	case Unpublish:
		c.unpublished(p, e, o.Result)
	case Leave:
		c.left, c.publication, c.refusals = append(c.left, c.publication.Target), Publication{}, 0
	case Release:
		p.released, p.alive = ok, o.Alive
		if ok && p.owner == Owned {
			c.publication = Publication{} // it is the other one's to detach
		}
	case MarkDetached:
		p.marked = ok
	}
}

func (c *Claim) unpublished(p *Pass, e Effect, r Result) {
	if r == Succeeded {
		c.publication = Publication{Record: attach.Record{Target: e.Target}, Belief: Unpublished}
		c.refusals = 0
		c.forgetLeft(e.Target)
		return
	}
	if e.Target == p.Target || r != Failed { // Rejected: a Secret is not there, say
		return
	}
	tries := previousTries
	if p.Operation == attach.Attaching {
		tries = 1
	}
	c.refusals++
	p.giveUp = c.refusals >= tries
}

// forgetLeft ends that the claim has left its publication at a target.
func (c *Claim) forgetLeft(t attach.Target) {
	c.left = slices.DeleteFunc(c.left, func(left attach.Target) bool { return left == t })
}

// Restore takes over what the objects of a claim record as published, where this process knows
// nothing itself.
func (t *Table) Restore(c *Claim, r attach.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !slices.Contains(c.left, r.Target) {
		c.publication.restore(r)
	}
}

// Believed returns what is believed of a claim's publication.
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

// Start notes that an effect begins: a call that is in flight may have its effect.
func (t *Table) Start(c *Claim, p Pass, e Effect) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e.Kind {
	case Publish:
		c.start(p)
		t.resolve(e.Target) // the claim takes it over
	case Release:
		if c.gone.IsZero() { // before the deletion's event, which asks
			t.released[c.UID] = true
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
	case e.Kind == Leave:
		t.leave(c.Identity, before)
	case e.Kind == Unpublish && o.Result == Succeeded:
		t.resolve(e.Target)
	case e.Kind == Release && o.Result != Succeeded:
		delete(t.released, c.UID)
	}
}
