package volume

import (
	"cmp"
	"slices"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// leave makes a publication unowned, and has it detached. What has been tried at that target
// without success still counts.
func (t *Table) leave(id Identity, p Publication) *Unowned {
	v := t.volume(p.Target.VolumeHandle)
	if v.unowned == nil {
		v.unowned = map[string]*Unowned{}
	}
	u := v.unowned[p.Target.NodeID]
	if u == nil || u.Left.UID != id.UID {
		times := 0
		if u != nil {
			times = u.times
		}
		u = &Unowned{Since: time.Now(), times: times}
		v.unowned[p.Target.NodeID] = u
	}
	u.times++
	u.Publication, u.Left, u.Unconfirmed, u.Gap = p, id, time.Time{}, time.Time{}
	u.answered, u.absences = time.Time{}, 0 // it may have been published since
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
		t.drop(e)
	}
	t.tidy(v)
}

// Resolve ends an unowned publication.
func (t *Table) Resolve(target attach.Target) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.resolve(target)
}

// ResolveOwned ends an unowned publication whose owner was read after seen was taken, unless the
// publication was left once more since: the owner itself may have vanished.
func (t *Table) ResolveOwned(seen Unowned) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if u := t.unowned(seen.Target); u != nil && u.times == seen.times {
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
