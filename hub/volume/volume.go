package volume

import (
	"cmp"
	"slices"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// Volume has the entries and unowned publications of one volume of a driver. It exists only while it has one. The
// Table's mutex guards it.
type Volume struct {
	handle  string
	entries []*Entry            // placed here
	unowned map[string]*Unowned // by node ID
}

// calls returns the entries of a volume as Next needs them.
func (t *Table) calls(v *Volume) []Call {
	calls := make([]Call, len(v.entries))
	for i, e := range v.entries {
		calls[i] = e.call(t.isHeld(e))
	}
	return calls
}

// detachFirst returns the entry of a detach that goes before an entry, nil if there is none.
func (t *Table) detachFirst(v *Volume, e *Entry) *Entry {
	if len(v.entries) == 1 || e.lane == DetachLane || e.place.Shared {
		return nil
	}
	calls := t.calls(v)
	if i := detachFirst(calls, detachesThatGoFirst(calls), slices.Index(v.entries, e)); i >= 0 {
		return v.entries[i]
	}
	return nil
}

// place puts an entry at a place, or makes it unplaced. If the entry leaves a volume, place returns that volume,
// which the caller must evaluate.
func (t *Table) place(e *Entry, p Place) (before *Volume) {
	t.touch(e.place.Target)
	t.touch(p.Target)
	if v := e.volume; v != nil && v.handle != p.Target.VolumeHandle {
		v.entries = slices.DeleteFunc(v.entries, func(other *Entry) bool { return other == e })
		before, e.volume = v, nil
	}
	e.place = p
	if e.volume == nil && p.Target.VolumeHandle != "" {
		e.volume = t.volume(p.Target.VolumeHandle)
		e.volume.entries = append(e.volume.entries, e)
	}
	return before
}

// drop removes an entry that is in no list.
func (t *Table) drop(e *Entry) {
	t.returnPermit(e)
	delete(t.entries, e.Key)
	t.evaluate(t.place(e, Place{}))
}

// volume returns the volume with a handle, a new one if there is none.
func (t *Table) volume(handle string) *Volume {
	v := t.volumes[handle]
	if v == nil {
		v = &Volume{handle: handle}
		t.volumes[handle] = v
	}
	return v
}

// retryAttaches ends the backoff of the attaches that need a volume for themselves: it was detached at a target.
// The driver may have refused them because of that.
func (t *Table) retryAttaches(detached attach.Target) {
	v := t.volumes[detached.VolumeHandle]
	if v == nil {
		return
	}
	for _, e := range v.entries {
		if e.lane == AttachLane && e.state == Delayed && !e.place.Shared {
			e.repeats = 0
			t.withdraw(e)
			t.becomeDue(e)
		}
	}
}

// tidy removes a volume without entries and unowned publications.
func (t *Table) tidy(v *Volume) {
	if len(v.entries) == 0 && len(v.unowned) == 0 {
		delete(t.volumes, v.handle)
	}
}

// evaluate lets the entries of a volume that may start now into their lanes, and takes the others out of their
// lanes. It does nothing if v is nil.
func (t *Table) evaluate(v *Volume) {
	switch {
	case v == nil:
		return
	case len(v.entries) == 0:
		t.tidy(v)
		return
	case len(v.entries) == 1: // nearly always
		if e := v.entries[0]; e.state == Blocked {
			t.admit(e)
		}
		return
	}
	verdicts := Next(t.calls(v), t.parallel)
	var admitted []*Entry
	for i, e := range v.entries {
		switch verdict := verdicts[i]; {
		case e.state != Blocked && e.state != Ready:
		case verdict.Start && e.state == Blocked:
			admitted = append(admitted, e)
		case verdict.Start:
		default:
			t.withdraw(e)
			e.state, e.waited = Blocked, true
			e.wait = Wait{Kind: verdict.Wait}
			if verdict.Wait == WaitDetach {
				first := v.entries[verdict.After]
				e.wait.Detach, e.wait.Node = first.Key, first.place.Node
			}
		}
	}
	slices.SortFunc(admitted, func(a, b *Entry) int { return cmp.Compare(b.came, a.came) })
	for _, e := range admitted { // each goes to the head of its lane
		t.admit(e)
	}
}
