package volume

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

// Unowned is a publication that no VolumeAttachment owns, as far as this process knows: its former owner
// is gone, or wants the volume at another target now. Nobody else knows of it.
type Unowned struct {
	Publication
	FormerOwner Identity
	Since       time.Time // when this process came to know of it
	Listed      bool      // see Found; FormerOwner has no name then

	Failures int       // in a row
	Error    string    // the last one
	Failed   time.Time // when the last one was
	// Unconfirmed is the time since which another process has to detach it; zero: this process has to.
	Unconfirmed time.Time
	// Gap is the end of the last term, if another process may have worked for the driver since. Confirm
	// resets it.
	Gap time.Time

	timesDisowned int
	refusals      int       // definitive answers in a row, up to the last try
	refused       time.Time // the first of them
	waits         time.Time // since then it is not tried because it may have an owner; zero: it is tried
	answered      time.Time // when the driver first answered an unpublish
	absences      int       // listings in a row that have the volume, and not at this node ID
}

// Key returns the key of the item that detaches it.
func (u *Unowned) Key() queue.Key { return queue.UnownedKey(u.Target) }

// place returns where the item calls the driver.
func (u *Unowned) place() queue.Place {
	return queue.Place{Target: u.Target, Node: u.FormerOwner.Node, Shared: u.Nodes == attach.MultiNode}
}

// withholds reports whether a PersistentVolume keeps its finalizer because of the publication. That ends after
// stuckAfter, as the volume may never be detached.
func (u *Unowned) withholds(stuckAfter time.Duration, now time.Time) bool {
	return now.Sub(u.Since) < stuckAfter
}

// disown makes a publication of a VolumeAttachment unowned, and asks for its detach. Earlier failures still count
// if the same VolumeAttachment disowned it before.
func (t *Table) disown(id Identity, p Publication) *Unowned {
	all := t.dangling[p.Target.VolumeHandle]
	if all == nil {
		all = map[attach.Target]*Unowned{}
		t.dangling[p.Target.VolumeHandle] = all
	}
	u := all[p.Target]
	if u == nil || u.FormerOwner.UID != id.UID {
		times := 0
		if u != nil {
			times = u.timesDisowned
		}
		u = &Unowned{Since: time.Now(), timesDisowned: times}
		all[p.Target] = u
	}
	u.timesDisowned++
	u.Publication, u.FormerOwner, u.Unconfirmed, u.Gap = p, id, time.Time{}, time.Time{}
	u.answered, u.absences = time.Time{}, 0 // it may have been published since
	t.Queue.AddLocked(u.Key(), queue.DetachLane, u.place())
	return u
}

// resolve ends an unowned publication, if there is one at the target: it was unpublished, or has an
// owner.
func (t *Table) resolve(target attach.Target) {
	if t.unowned(target) == nil {
		return
	}
	all := t.dangling[target.VolumeHandle]
	if delete(all, target); len(all) == 0 {
		delete(t.dangling, target.VolumeHandle)
	}
	t.Queue.DropLocked(queue.UnownedKey(target))
}

// Resolve ends an unowned publication, if there is one at the target.
func (t *Table) Resolve(target attach.Target) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.resolve(target)
}

// Detached ends an unowned publication that was detached from its target, on a Kubernetes node. Attaches of the volume that
// back off are tried again at once. But after the detach of a publication that only a listing has found they wait: a
// driver may report the volume elsewhere, and refuse the attach, without end.
func (t *Table) Detached(target attach.Target, node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.unowned(target)
	t.resolve(target)
	handle := target.VolumeHandle
	if u == nil || u.Listed {
		handle = ""
	}
	t.Queue.DetachedLocked(handle, node)
}

// ResolveOwned ends an unowned publication whose owner was read after seen was returned. It does nothing if the
// publication was disowned again since: that owner itself may have vanished.
func (t *Table) ResolveOwned(seen Unowned) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if u := t.unowned(seen.Target); u != nil && u.timesDisowned == seen.timesDisowned {
		t.resolve(seen.Target)
	}
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

// unowned returns the unowned publication at a target, nil if there is none.
func (t *Table) unowned(target attach.Target) *Unowned {
	return t.dangling[target.VolumeHandle][target]
}

// eachUnowned returns all unowned publications. The loop may resolve them.
func (t *Table) eachUnowned() iter.Seq[*Unowned] {
	return func(yield func(*Unowned) bool) {
		for _, all := range t.dangling {
			for _, u := range all {
				if !yield(u) {
					return
				}
			}
		}
	}
}

// HasPublications reports whether a volume may be published, as far as this process knows from calls or from records.
func (t *Table) HasPublications() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for range t.eachUnowned() {
		return true
	}
	for _, c := range t.claims {
		if c.publication.MayBePublished() {
			return true
		}
	}
	return false
}

// UnownedAll returns copies of all unowned publications, the oldest first.
func (t *Table) UnownedAll() []Unowned {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []Unowned
	for u := range t.eachUnowned() {
		all = append(all, *u)
	}
	slices.SortFunc(all, func(a, b Unowned) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Target.VolumeHandle, b.Target.VolumeHandle), cmp.Compare(a.Target.NodeID, b.Target.NodeID))
	})
	return all
}

// Requeue asks for the detach of each unowned publication that has no item, and returns how many
// had none.
func (t *Table) Requeue() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for u := range t.eachUnowned() {
		if !t.Queue.HasLocked(u.Key()) {
			t.Queue.AddLocked(u.Key(), queue.DetachLane, u.place())
			n++
		}
	}
	return n
}

// Withholds reports whether a PersistentVolume must keep its finalizer: a claim of it is not known
// to have ended, or a publication of its volume is unowned. Both count for at most stuckAfter: while
// the driver is away they may never end.
func (t *Table) Withholds(persistentVolume, handle string, stuckAfter time.Duration, now time.Time) (claimed, published bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.claims {
		if c.PersistentVolume == persistentVolume && (c.gone.IsZero() || now.Sub(c.gone) < stuckAfter) {
			claimed = true
		}
	}
	for _, u := range t.dangling[handle] {
		published = published || u.withholds(stuckAfter, now)
	}
	return claimed, published
}
