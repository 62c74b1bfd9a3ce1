package volume

import "github.com/csi-attach-hub/csi-attach-hub/hub/attach"

// Listing notes from now on at which targets items begin and end, until end is called. worked reports whether
// there was an item at a target since, or is an item or an unowned publication now: what a listing of the driver's
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
	return t.Queue.IsAtLocked(target)
}

// Found makes a publication unowned that only the driver reports, and asks for its detach. No VolumeAttachment asks for
// the volume there; id has the node and the PersistentVolume alone. Found does nothing between terms, or if the
// publication is unowned already.
func (t *Table) Found(id Identity, r attach.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.Queue.IsOpenLocked() || t.unowned(r.Target) != nil {
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
