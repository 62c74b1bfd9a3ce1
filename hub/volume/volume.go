package volume

import (
	"cmp"
	"slices"
)

// Volume is what is wanted and believed about one volume of a driver. It exists only while an
// entry is placed at it or a publication of it is unowned. The Table's mutex guards it.
type Volume struct {
	handle  string
	entries []*Entry            // placed here
	unowned map[string]*Unowned // by node ID
}

// verdicts asks Next about the entries.
func (v *Volume) verdicts(parallel bool) []Verdict {
	calls := make([]Call, len(v.entries))
	for i, e := range v.entries {
		calls[i] = e.call()
	}
	return Next(calls, parallel)
}

// detachFirst returns the entry of a detach that has to go before an entry, nil for none.
func (v *Volume) detachFirst(e *Entry) *Entry {
	if len(v.entries) == 1 || e.lane == DetachLane || e.place.Shared {
		return nil
	}
	calls := make([]Call, len(v.entries))
	for i, e := range v.entries {
		calls[i] = e.call()
	}
	if i := detachFirst(calls, goFirst(calls), slices.Index(v.entries, e)); i >= 0 {
		return v.entries[i]
	}
	return nil
}

// place puts an entry where it calls the driver, or makes it unplaced.
func (t *Table) place(e *Entry, p Place) {
	if e.volume != nil && e.volume.handle == p.Target.VolumeHandle {
		e.place = p
		return
	}
	t.displace(e)
	e.place = p
	if p.Target.VolumeHandle != "" {
		e.volume = t.volume(p.Target.VolumeHandle)
		e.volume.entries = append(e.volume.entries, e)
	}
}

// displace takes an entry from its volume.
func (t *Table) displace(e *Entry) {
	v := e.volume
	if v == nil {
		return
	}
	e.volume = nil
	v.entries = slices.DeleteFunc(v.entries, func(other *Entry) bool { return other == e })
	t.tidy(v)
	t.evaluate(v)
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

// tidy drops a volume that nothing is known of.
func (t *Table) tidy(v *Volume) {
	if len(v.entries) == 0 && len(v.unowned) == 0 {
		delete(t.volumes, v.handle)
	}
}

// evaluate lets those entries of a volume into their lanes that may start now, and takes the
// others out.
func (t *Table) evaluate(v *Volume) {
	switch len(v.entries) {
	case 0:
		return
	case 1: // nearly always
		if e := v.entries[0]; e.state == Blocked {
			t.admit(e)
		}
		return
	}
	verdicts := v.verdicts(t.parallel)
	var admitted []*Entry
	for i, e := range v.entries {
		switch may := verdicts[i]; {
		case e.state != Blocked && e.state != Ready:
		case may.Start && e.state == Blocked:
			admitted = append(admitted, e)
		case may.Start:
		default:
			t.withdraw(e)
			e.state, e.waited = Blocked, true
			e.wait = Wait{Kind: may.Wait}
			if may.Wait == WaitDetach {
				e.wait.Detach = v.entries[may.Behind].Key
			}
		}
	}
	slices.SortFunc(admitted, func(a, b *Entry) int { return cmp.Compare(b.came, a.came) })
	for _, e := range admitted { // each goes to the head of its lane
		t.admit(e)
	}
}
