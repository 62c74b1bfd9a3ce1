package volume

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
)

const (
	// unconfirmedFor is how long an unowned publication is kept that another process had to
	// see to: longer than a storage system is out of order.
	unconfirmedFor = 24 * time.Hour
	// refusalsToGiveUp is how many definitive answers in a row end the detach of an unowned
	// publication: a driver that has just started may not have found its nodes.
	refusalsToGiveUp = 10
)

// Unowned is a publication that no VolumeAttachment owns, as far as this process knows: its
// VolumeAttachment is gone, or wants the volume at another target now. Nobody else knows of it.
type Unowned struct {
	Publication
	Left Identity // the VolumeAttachment that left it
	Since time.Time // when this process came to know of it

	Failures int    // in a row
	Error    string // the last one
	// Unconfirmed is since when another process had to see to it; zero: this one has.
	Unconfirmed time.Time
	// Gap is when the last term ended after which another process may have worked for the driver,
	// until Confirm; zero: there was none.
	Gap time.Time

	refusals int       // definitive answers in a row, up to the last try
	refused  time.Time // the first of them
	waits    time.Time // since when it is not tried because of a possible owner; zero if it is
	called   time.Time // when the last call ended
	answered bool      // the driver has answered one
	absences int       // listings in a row that have the volume, and not at this node ID
}

// absencesToEnd is how many listings in a row end an unowned publication.
const absencesToEnd = 2

// Key returns the key of the entry that detaches it.
func (u *Unowned) Key() Key { return unownedKey(u.Target) }

// place returns where the entry calls the driver.
func (u *Unowned) place() Place {
	return Place{Target: u.Target, Node: u.Left.Node, Shared: u.Nodes == attach.MultiNode}
}

// definitive reports whether the driver has answered that it does not know the volume or the
// node, so that another try cannot end otherwise. InvalidArgument may be about secrets that are
// missing: it counts only if it is known which secret belongs to the call.
func definitive(err error, secretKnown bool) bool {
	switch status.Code(err) {
	case codes.NotFound:
		return true
	case codes.InvalidArgument:
		return secretKnown
	}
	return false
}

// isAnswer reports whether an error of a call is surely the driver's own: the others also say that no
// answer has come.
func isAnswer(err error) bool {
	switch status.Code(err) {
	case codes.DeadlineExceeded, codes.Canceled, codes.Unavailable:
		return false
	}
	return true
}

// failed takes in a try that has failed.
func (u *Unowned) failed(err error, now time.Time) {
	u.Failures++
	if call := (*attach.CallError)(nil); errors.As(err, &call) {
		u.called, u.absences = now, 0
		u.answered = u.answered || isAnswer(err)
	}
	u.waits = time.Time{}
	u.Error = csiclient.Shorten(err.Error(), csiclient.MaxWords)
	if !definitive(err, u.SecretKnown) {
		u.refusals = 0
		return
	}
	if u.refusals++; u.refusals == 1 {
		u.refused = now
	}
}

// Hopeless reports whether the volume is not to be detached any more: the driver has given
// definitive answers for stuckAfter, all of them in a session that is as old, or for longer than
// a driver can need to find its nodes. session is when the session began.
func (u *Unowned) Hopeless(stuckAfter time.Duration, session, now time.Time) bool {
	if u.refusals < refusalsToGiveUp {
		return false
	}
	refused := now.Sub(u.refused)
	return refused >= stuckAfter && now.Sub(session) >= stuckAfter || refused >= unconfirmedFor
}

// withholds reports whether a PersistentVolume keeps its finalizer because of this: not for
// ever, if the volume cannot be detached or its driver is away.
func (u *Unowned) withholds(stuckAfter time.Duration, now time.Time) bool {
	return now.Sub(u.Since) < stuckAfter
}

// leave makes a publication unowned, and has it detached. One that is known to be unowned at that
// target stays as it is.
func (t *Table) leave(id Identity, p Publication) *Unowned {
	v := t.volume(p.Target.VolumeHandle)
	if v.unowned == nil {
		v.unowned = map[string]*Unowned{}
	}
	u := v.unowned[p.Target.NodeID]
	if u == nil {
		u = &Unowned{Since: time.Now()}
		v.unowned[p.Target.NodeID] = u
	}
	u.Publication, u.Left, u.Unconfirmed, u.Gap = p, id, time.Time{}, time.Time{}
	t.add(u.Key(), DetachLane, u.place())
	return u
}

// resolve ends an unowned publication: it was unpublished, or a claim has taken it over.
func (t *Table) resolve(target attach.Target) {
	v := t.volumes[target.VolumeHandle]
	if v == nil || v.unowned[target.NodeID] == nil {
		return
	}
	delete(v.unowned, target.NodeID)
	if e := t.entries[unownedKey(target)]; e != nil && e.state != Running {
		t.withdraw(e)
		delete(t.entries, e.Key)
		t.displace(e)
	}
	t.tidy(v)
}

// Resolve ends an unowned publication.
func (t *Table) Resolve(target attach.Target) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.resolve(target)
}

// Unowned returns a copy of an unowned publication, and whether there is one at the target.
func (t *Table) Unowned(target attach.Target) (Unowned, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if u := t.unowned(target); u != nil {
		return *u, true
	}
	return Unowned{}, false
}

func (t *Table) unowned(target attach.Target) *Unowned {
	if v := t.volumes[target.VolumeHandle]; v != nil {
		return v.unowned[target.NodeID]
	}
	return nil
}

// HasLeft reports whether a VolumeAttachment that still exists has left its volume at a target, and
// wants it at another one.
func (t *Table) HasLeft(id Identity, target attach.Target) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.claims[id.Name]
	return c != nil && c.UID == id.UID && slices.Contains(c.left, target)
}

// UnownedAll returns copies of all unowned publications, the oldest first.
func (t *Table) UnownedAll() []Unowned {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []Unowned
	for _, v := range t.volumes {
		for _, u := range v.unowned {
			all = append(all, *u)
		}
	}
	slices.SortFunc(all, func(a, b Unowned) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Target.VolumeHandle, b.Target.VolumeHandle), cmp.Compare(a.Target.NodeID, b.Target.NodeID))
	})
	return all
}

// UnownedFailed takes in that the detach of an unowned publication has failed, and returns how it
// stands.
func (t *Table) UnownedFailed(target attach.Target, err error, now time.Time) Unowned {
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.unowned(target)
	if u == nil {
		return Unowned{}
	}
	u.failed(err, now)
	return *u
}

// UnownedWaits notes why an unowned publication is not detached now, and returns for how long that
// has been so.
func (t *Table) UnownedWaits(target attach.Target, why error, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.unowned(target)
	if u == nil {
		return 0
	}
	if u.waits.IsZero() {
		u.waits = now
	}
	u.Error = csiclient.Shorten(why.Error(), csiclient.MaxWords)
	return now.Sub(u.waits)
}

// Listed takes in a listing of the driver's volumes, and returns the unowned publications that it ends.
// has says whether the listing has a volume with its nodes, and whether it has it at a node ID. began is
// when the listing began, timeout the longest that a call may take. Only what the driver
// has refused to unpublish, and long enough before, ends so: a call may still have its effect.
func (t *Table) Listed(has func(attach.Target) (listed, there bool), began time.Time, timeout time.Duration) []attach.Target {
	t.mu.Lock()
	defer t.mu.Unlock()
	var ended []attach.Target
	for _, v := range t.volumes {
		for _, u := range v.unowned {
			listed, there := has(u.Target)
			if !u.answered || began.Sub(u.called) < timeout || !listed || there {
				u.absences = 0
				continue
			}
			if u.absences++; u.absences == absencesToEnd {
				ended = append(ended, u.Target)
			}
		}
	}
	for _, target := range ended {
		t.resolve(target)
	}
	return ended
}

// Unconfirm ends an unowned publication that another process has seen to: it was seen to detach the
// volume, for the VolumeAttachment with the uid. What that one itself has left is not meant.
func (t *Table) Unconfirm(target attach.Target, uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if u := t.unowned(target); u != nil && (!u.Unconfirmed.IsZero() || !t.closed.IsZero() && uid != u.Left.UID) {
		t.resolve(target)
	}
}

// Observe takes what a VolumeAttachment has left published that vanished while another process
// worked for the driver, which may not get to see to it.
func (t *Table) Observe(id Identity, last attach.Record, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetUnconfirmed(now)
	if t.unowned(last.Target) == nil {
		t.leave(id, Publication{Record: last, Belief: Recorded}).Unconfirmed = now
	}
}

// forgetUnconfirmed drops unowned publications that another process must have seen to by now.
func (t *Table) forgetUnconfirmed(now time.Time) {
	for _, v := range t.volumes {
		for _, u := range v.unowned {
			if !u.Unconfirmed.IsZero() && now.Sub(u.Unconfirmed) > unconfirmedFor {
				t.resolve(u.Target)
			}
		}
	}
}

// Confirm makes all unowned publications this process' to see to, and asks for their detach.
func (t *Table) Confirm() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, v := range t.volumes {
		for _, u := range v.unowned {
			u.Unconfirmed, u.Gap = time.Time{}, time.Time{}
			t.add(u.Key(), DetachLane, u.place())
		}
	}
}

// Requeue asks for the detach of each unowned publication that has no entry, and returns how many
// had none.
func (t *Table) Requeue() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, v := range t.volumes {
		for _, u := range v.unowned {
			if t.entries[u.Key()] == nil {
				t.add(u.Key(), DetachLane, u.place())
				n++
			}
		}
	}
	return n
}

// Withholds reports whether a PersistentVolume must keep its finalizer: a claim of it is not known
// to have ended, or a publication of its volume is unowned. Both count for at most stuckAfter: while
// the driver is away that may take for ever.
func (t *Table) Withholds(persistentVolume, handle string, stuckAfter time.Duration, now time.Time) (claimed, published bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.claims {
		if c.PersistentVolume == persistentVolume && (c.gone.IsZero() || now.Sub(c.gone) < stuckAfter) {
			claimed = true
		}
	}
	if v := t.volumes[handle]; v != nil {
		for _, u := range v.unowned {
			published = published || u.withholds(stuckAfter, now)
		}
	}
	return claimed, published
}
