package volume

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// WedgedAfter is how long an entry may wait that could start. Run looks for it within milliseconds, on an
// overloaded machine within seconds.
const WedgedAfter = time.Minute

// Table has the claims, publications and entries of all volumes of one driver. It outlives sessions, terms, modes
// and the driver's absence from the configuration; its entries belong to one term. Its methods are safe for
// concurrent use, and only Run blocks.
type Table struct {
	Finalizer string // of the driver

	mu       sync.Mutex
	queue                       // guarded by mu, like all that follows
	volumes  map[string]*Volume // by handle
	claims   map[string]*Claim  // by name of the VolumeAttachment
	swept    time.Time          // when dropUnconfirmed ran last
	released map[types.UID]bool // see WasReleased

	touched map[attach.Target]bool // see Listing; nil: there is none
	pause   pauses                 // see SetPause
}

// NewTable returns an empty Table.
func NewTable(finalizer string) *Table {
	return &Table{Finalizer: finalizer, volumes: map[string]*Volume{}, claims: map[string]*Claim{}, released: map[types.UID]bool{},
		pause: func(int) time.Duration { return time.Minute }}
}

// Add asks for a run of the entry of a key at once: it ends a delay. An entry that is running runs again
// afterwards, unless its worker calls ClearChanged. Between terms Add does nothing.
func (t *Table) Add(key Key, l Lane, p Place) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.add(key, l, p)
}

// Renew is Add and RetryNow, because the driver may answer otherwise than before: its connection or attachRequired is new. But
// it does not end the delay of a suspect (Retries).
func (t *Table) Renew(key Key, l Lane, p Place) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.renew(key, l, p)
}

// renew is Renew.
func (t *Table) renew(key Key, l Lane, p Place) {
	e := t.entry(key, l)
	switch {
	case e == nil: // the next term adds entries for all work that the caches show
	case e.state == Running:
		e.again, e.renewed, e.repeats = true, true, 0
	case e.Retries.Suspect() && e.lane == l:
		t.withdraw(e)
		before := t.place(e, t.sharing(key, p))
		e.due = laterOf(e.due, time.Now().Add(e.Retries.AfterReconnect))
		t.delay(e)
		t.evaluate(before)
	default:
		t.add(key, l, p)
	}
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// RetryNow ends the delay of an entry, or the delay that it would get at the end of its run. It is called when an
// object has changed that may help the entry.
func (t *Table) RetryNow(key Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.entries[key]; e != nil {
		t.retryNow(e)
	}
}

// retryNow is RetryNow.
func (t *Table) retryNow(e *Entry) {
	e.repeats = 0
	switch e.state {
	case Running:
		e.retryNow = true
	case Delayed:
		t.withdraw(e)
		t.becomeDue(e)
	}
}

// RetryAfter is RetryNow for all entries whose last try failed for a reason.
func (t *Table) RetryAfter(v diagnosis.Verdict) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.entries {
		if e.failures > 0 && e.cause.Verdict == v {
			t.retryNow(e)
		}
	}
}

// sharing returns a place that is not Shared if this process has published the volume in a single-node
// mode.
func (t *Table) sharing(key Key, p Place) Place {
	if c := t.claims[key.Name]; key.Kind == ClaimKind && c != nil && c.publication.nodesOf(p.Target.VolumeHandle) == attach.SingleNode {
		p.Shared = false
	}
	return p
}

// Reserve reports whether a running entry may call the driver at a place, which may differ from the place
// that it was started for. If not, the entry is blocked and runs again later: its worker must not use it
// any more.
func (t *Table) Reserve(e *Entry, p Place) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	p = t.sharing(e.Key, p)
	e.called = true
	moved := e.place.Target != p.Target || e.place.Shared != p.Shared
	var before *Volume
	if moved {
		p.Node = e.place.Node // it has a slot of that node
		p.Noted = e.place.Noted && p.Target == e.place.Target
		t.steps++
		e.state, e.came = Blocked, t.steps
		before = t.place(e, p)
	}
	v := e.volume
	goesOn := (v == nil || t.mayGoOn(v, e, moved)) && !t.isHeld(e)
	if goesOn {
		t.steps++
		e.state, e.served = Running, t.steps
	} else {
		e.state, e.waited = Blocked, true
		t.lanes.load[e.lane].running.Remove(e.link)
		e.link = nil
		t.freeSlot(e)
		t.returnPermit(e)
		t.signal()
	}
	if moved || !goesOn {
		t.evaluate(before)
		t.evaluate(v)
	}
	return goesOn
}

// mayGoOn reports whether a running entry may call the driver now. If it has not moved, only a later detach that
// goes first can block it.
func (t *Table) mayGoOn(v *Volume, e *Entry, moved bool) bool {
	if !moved {
		return t.detachFirst(v, e) == nil
	}
	return Next(t.calls(v), t.parallel)[slices.Index(v.entries, e)].Start
}

// SetLimits sets how many calls may be in flight at once, how many for one node (0: no limit of its own),
// and whether calls for a multi-node volume on different nodes may run side by side. Calls in flight go
// on.
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

// Secrets returns the secrets of all publications.
func (t *Table) Secrets() []map[string]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []map[string]string
	for _, c := range t.claims {
		if c.publication.Secrets != nil {
			all = append(all, c.publication.Secrets)
		}
	}
	for u := range t.eachUnowned() {
		if u.Secrets != nil {
			all = append(all, u.Secrets)
		}
	}
	return all
}

// DropSecrets drops the secrets of all publications.
func (t *Table) DropSecrets() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.claims {
		c.publication.Secrets = nil
	}
	for u := range t.eachUnowned() {
		u.Secrets = nil
	}
}

// OpenLanes lets attaches and detaches start: the driver can be called. After ShutLanes the number of
// calls at once grows from a few to all workers within seconds: a driver that has just come back must not
// get all calls at once that have waited.
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

// ClearChanged reports whether a running entry was asked for since its run began, or since the last call of
// ClearChanged. The caller takes that change into account, so it causes no other run.
func (t *Table) ClearChanged(e *Entry) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	again := e.again
	e.again = false
	return again
}

// Done ends the run of an entry, and the entry unless it was asked for meanwhile.
func (t *Table) Done(e *Entry) { t.done(e, e.lane, -1, false) }

// DoneMissing is Done, and ends the claim too: after the run began, or after ClearChanged, the cache did not have the
// VolumeAttachment any more. An object that gets its name later asks for the entry.
func (t *Table) DoneMissing(e *Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.claims[e.Key.Name]; c != nil && c.gone.IsZero() {
		c.gone = time.Now()
	}
	t.endRun(e, e.lane, -1, false)
}

// DoneFor ends the run of an entry that runs again in a lane after a delay, at once if that is 0. If the
// next run ends with a delay of 0 too, and nobody has asked for the entry meanwhile, the entry pauses;
// others that wait for it go on waiting.
func (t *Table) DoneFor(e *Entry, l Lane, delay time.Duration) { t.done(e, l, delay, false) }

// Postpone is DoneFor for an entry that could not be tried, and has not failed: others that wait for it go
// on waiting.
func (t *Table) Postpone(e *Entry, l Lane, delay time.Duration) { t.done(e, l, delay, true) }

func (t *Table) done(e *Entry, l Lane, delay time.Duration, pauses bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endRun(e, l, delay, pauses)
}

// endRun ends the run of an entry, and its claim if the object is gone.
func (t *Table) endRun(e *Entry, l Lane, delay time.Duration, pauses bool) {
	if e.Key.Kind == ClaimKind {
		if c := t.claims[e.Key.Name]; c != nil && !c.gone.IsZero() {
			t.close(c) // while others still have to wait for this entry
			e.Retries, e.failures, e.failure, e.cause = Retries{}, 0, "", diagnosis.Cause{}
		}
	}
	e.pauses = e.pauses || pauses
	t.finish(e, l, delay)
}
