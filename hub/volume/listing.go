package volume

import "github.com/csi-attach-hub/csi-attach-hub/hub/attach"

// Listing notes from now on at which targets entries begin and end, until end is called. worked reports whether
// there was an entry at a target since, or is an entry or an unowned publication now: what a listing of the driver's
// volumes says about the target may be out of date then. There is one Listing at a time.
func (t *Table) Listing() (worked func(attach.Target) bool, end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.touched = map[attach.Target]bool{}
	return t.worked, t.endListing
}

func (t *Table) endListing() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.touched = nil
}

func (t *Table) worked(target attach.Target) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.touched[target] || t.unowned(target) != nil {
		return true
	}
	if v := t.volumes[target.VolumeHandle]; v != nil {
		for _, e := range v.entries {
			if e.place.Target == target {
				return true
			}
		}
	}
	return false
}

// touch notes that an entry begins or ends at a target, while there is a Listing.
func (t *Table) touch(target attach.Target) {
	if t.touched != nil && target.VolumeHandle != "" {
		t.touched[target] = true
	}
}

// Found makes a publication unowned that only the driver reports, and asks for its detach. No VolumeAttachment asks for
// the volume there; id has the node and the PersistentVolume alone. Found does nothing between terms, or if the
// publication is unowned already.
func (t *Table) Found(id Identity, r attach.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.entries == nil || t.unowned(r.Target) != nil {
		return
	}
	t.disown(id, Publication{Record: r, Belief: Recorded}).Listed = true
}

// DropFound ends the publications that Found has made unowned: this process has not published them, and another listing
// shows them again.
func (t *Table) DropFound() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropFound()
}

func (t *Table) dropFound() {
	for u := range t.eachUnowned() {
		if u.Listed {
			t.resolve(u.Target)
		}
	}
}
