package volume

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// WedgedAfter is how long entries may be left alone that could start: the Table looks within
// milliseconds, and a machine that is short of everything within seconds.
const WedgedAfter = time.Minute

// Table is what this process wants and believes about all volumes of one driver. It outlives
// sessions, terms, modes and the driver's absence from the configuration; its entries are those
// of one term. Its methods may be called at the same time, and none but Run blocks.
type Table struct {
	Finalizer string // of the driver

	mu       sync.Mutex
	queue                       // guarded by mu, like all that follows
	volumes  map[string]*Volume // by handle
	claims   map[string]*Claim  // by name of the VolumeAttachment
	swept    time.Time          // see forgetUnconfirmed
	released map[types.UID]bool // those that this process has let go, see WasReleased
}

// NewTable returns an empty Table.
func NewTable(finalizer string) *Table {
	return &Table{Finalizer: finalizer, volumes: map[string]*Volume{}, claims: map[string]*Claim{}, released: map[types.UID]bool{}}
}

// Add asks for work on a key, at once: a delay that it has is cut. An entry that runs is noted as
// changed (see Changed).
func (t *Table) Add(key Key, l Lane, p Place) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.add(key, l, p)
}

// Renew is Add for what has new reason to succeed: if its run fails, there is another one at once.
func (t *Table) Renew(key Key, l Lane, p Place) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.add(key, l, p); e.state == Running {
		e.retryNow = true
	}
}

// RetryNow cuts the delay of an entry that backs off, or the one that it would get at the end of
// its run: something has changed that may help it.
func (t *Table) RetryNow(key Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[key]
	if e == nil {
		return
	}
	e.repeats = 0
	switch e.state {
	case Running:
		e.retryNow = true
	case Delayed:
		t.withdraw(e)
		t.becomeDue(e)
	}
}

// sharing returns a place, exclusive if this process has published the volume in a single-node
// mode.
func (t *Table) sharing(key Key, p Place) Place {
	if c := t.claims[key.Name]; key.Kind == ClaimKind && c != nil && c.publication.nodesOf(p.Target.VolumeHandle) == attach.SingleNode {
		p.Shared = false
	}
	return p
}

// Reserve asks whether a running entry may call the driver at a place, which may be another one than
// it was started for. If it reports false, the entry waits until it may, and will run anew; its
// worker must let go of it.
func (t *Table) Reserve(e *Entry, p Place) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	p = t.sharing(e.Key, p)
	e.called = true
	moved := e.place.Target != p.Target || e.place.Shared != p.Shared
	var left *Volume
	if moved {
		p.Node = e.place.Node // that is where its slot is
		t.steps++
		e.state, e.came = Blocked, t.steps
		left = t.place(e, p)
	}
	v := e.volume
	goesOn := v == nil || t.mayGoOn(v, e, moved)
	if goesOn {
		t.steps++
		e.state, e.served = Running, t.steps
	} else {
		e.state, e.waited = Blocked, true
		t.lanes.load[e.lane].running.Remove(e.link)
		e.link = nil
		t.releaseSlot(e)
		t.signal()
	}
	if moved || !goesOn {
		t.evaluate(left)
		t.evaluate(v)
	}
	return goesOn
}

// mayGoOn reports whether an entry may call the driver now. One that has not moved has its volume;
// but a detach may have come that goes first.
func (t *Table) mayGoOn(v *Volume, e *Entry, moved bool) bool {
	if !moved {
		return v.detachFirst(e) == nil
	}
	return Next(v.calls(), t.parallel)[slices.Index(v.entries, e)].Start
}

// SetLimits changes how many calls may be in flight at once, for one node (0: no limit of its own),
// and whether calls for a multi-node volume on different nodes may be. Those in flight go on.
func (t *Table) SetLimits(workers, perNode int, parallel bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lanes.workers, t.slots = workers, perNode
	for name, n := range t.nodes {
		t.admitWaiting(name, n)
	}
	if t.parallel != parallel {
		t.parallel = parallel
		for _, v := range t.volumes {
			t.evaluate(v)
		}
	}
	t.signal()
}

// OpenLanes lets attaches and detaches start: the driver can be called. After ShutLanes the number of calls
// at once grows from a few to all workers within seconds: all that has waited must not fall upon a
// driver that has just come back.
func (t *Table) OpenLanes() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lanes.open = true
	if t.lanes.shut {
		t.lanes.reopened = time.Now()
	}
	t.signal()
}

// ShutLanes lets no further attach and detach start: the driver cannot be called.
func (t *Table) ShutLanes() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lanes.open, t.lanes.shut = false, true
}

// Changed reports whether a running entry was asked for again since it began or since the last
// call of Changed.
func (t *Table) Changed(e *Entry) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	again := e.again
	e.again = false
	return again
}

// Done ends the run of an entry.
func (t *Table) Done(e *Entry) { t.done(e, e.lane, -1, false) }

// DoneFor ends the run of an entry that has to run again in a lane after a delay, at once if that
// is 0. If a run that began so ends in the same way, and nobody has asked for the entry meanwhile,
// there is a pause; others that have to wait for the entry do so still.
func (t *Table) DoneFor(e *Entry, l Lane, delay time.Duration) { t.done(e, l, delay, false) }

// Postpone is DoneFor for an entry that has come at a bad moment, which says nothing about its
// work: others that have to wait for it do so still.
func (t *Table) Postpone(e *Entry, l Lane, delay time.Duration) { t.done(e, l, delay, true) }

func (t *Table) done(e *Entry, l Lane, delay time.Duration, soon bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.Key.Kind == ClaimKind {
		if c := t.claims[e.Key.Name]; c != nil && !c.gone.IsZero() {
			t.close(c) // while others still have to wait for this entry
			e.Retries, e.failures, e.failure, e.cause = Retries{}, 0, "", diagnosis.Cause{}
		}
	}
	e.soon = e.soon || soon
	t.finish(e, l, delay)
}
