package hub

import (
	"cmp"
	"slices"
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// An orphan is the record of a volume that may be attached where no VolumeAttachment asks
// for it any more. Nobody else knows of it.

// witnessedFor is how long an orphan is kept that another process had to see to: longer
// than a storage system is out of order.
const witnessedFor = 24 * time.Hour

// forgetWitnessed drops orphans that another process must have seen to by now. The
// caller has locked mu.
func (l *ledger) forgetWitnessed(now time.Time) {
	for name, r := range l.orphans {
		if !r.witnessed.IsZero() && now.Sub(r.witnessed) > witnessedFor {
			l.dropOrphan(name)
		}
	}
}

// witness makes an orphan of what a VolumeAttachment may have left attached that
// vanished while another process worked for the driver, which may not get to see to it.
func (l *ledger) witness(decider attach.Driver, last attach.Facts, now time.Time) {
	va := last.VolumeAttachment
	if !cutShort(va, l.finalizer) {
		return
	}
	r := newRecord(va)
	if r.progress.AdoptLast(decider, last); !r.progress.MayBeAttached() {
		return
	}
	r.witnessed = now
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetWitnessed(now)
	if key := orphanKey(r.progress.Target); l.orphans[key.name] == nil {
		l.addOrphan(r)
	}
}

// cutShort says of the last state of a VolumeAttachment that it vanished without having
// been deleted in the regular way: its finalizer came at the same time, and nobody
// has detached it (kubernetes/kubernetes issue 124749), or somebody took the finalizer
// while it was attached.
func cutShort(va *storagev1.VolumeAttachment, finalizer string) bool {
	return va.DeletionTimestamp == nil && (attach.HasFinalizer(va.Finalizers, finalizer) || va.Status.Attached)
}

// abandon makes an orphan of what a record's volume may still be attached to, because
// its VolumeAttachment is about another place now, and returns its key.
func (l *ledger) abandon(r *record) workKey {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := l.addOrphan(&record{uid: r.uid, attachment: r.attachment, node: r.node, volume: r.volume, progress: r.progress})
	r.abandoned, r.progress = r.progress.Target, attach.Progress{}
	return key
}

// hasAbandoned reports whether the record of a VolumeAttachment has left its volume at a target to
// an orphan.
func (l *ledger) hasAbandoned(va *storagev1.VolumeAttachment, target attach.Target) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.records[va.Name]
	return r != nil && r.uid == va.UID && r.abandoned == target
}

// vanish notes that a VolumeAttachment is gone, until found.
func (l *ledger) vanish(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.records[name]; r != nil {
		l.vanished.put(name, r.volume)
		if r.vanished.IsZero() {
			r.vanished = time.Now()
		}
	}
}

// found notes that what a VolumeAttachment has left attached is an orphan by now.
func (l *ledger) found(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.vanished.remove(name)
}

// leftElsewhere returns the keys of the work that has to be done before a volume
// can be attached by a VolumeAttachment: others that are gone may have left it on another
// node. They are sorted.
func (l *ledger) leftElsewhere(va *storagev1.VolumeAttachment, target attach.Target) []workKey {
	l.mu.Lock()
	defer l.mu.Unlock()
	var keys []workKey
	volume := attach.VolumeName(va)
	for name := range l.vanished.in(volume) {
		if name != va.Name && volume != "" { // of inline volumes nothing says which is which
			keys = append(keys, workKey{attachmentWork, name})
		}
	}
	for name := range l.left.in(target.VolumeHandle) {
		if name != orphanKey(target).name {
			keys = append(keys, workKey{orphanWork, name})
		}
	}
	slices.SortFunc(keys, func(a, b workKey) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), strings.Compare(a.name, b.name))
	})
	return keys
}

// orphan returns the record of an orphan, nil if there is none any more.
func (l *ledger) orphan(key workKey) *record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.orphans[key.name]
}

// unsettled says whether there is a record that names a PersistentVolume. Where no
// VolumeAttachment does any more, no worker has looked yet at what was left attached;
// when one has, withheld tells. While the driver is away that may take for ever: nobody waits
// longer than stuckAfter.
func (l *ledger) unsettled(volume string, stuckAfter time.Duration, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.records {
		if r.volume == volume && (r.vanished.IsZero() || now.Sub(r.vanished) < stuckAfter) {
			return true
		}
	}
	return false
}

// buried forgets an orphan, but not another one that came to be at the same place.
func (l *ledger) buried(key workKey, r *record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.orphans[key.name] == r {
		l.dropOrphan(key.name)
	}
}

// regained forgets what a VolumeAttachment has left at a place where it is attached again.
func (l *ledger) regained(owner *record, place attach.Target) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := orphanKey(place).name
	if r := l.orphans[name]; r != nil && r.uid == owner.uid {
		l.dropOrphan(name)
	}
	if owner.abandoned == place {
		owner.abandoned = attach.Target{}
	}
}

// takeOrphans returns the keys of all orphans, which are this process' to see to from now
// on.
func (l *ledger) takeOrphans() []workKey {
	l.mu.Lock()
	defer l.mu.Unlock()
	keys := make([]workKey, 0, len(l.orphans))
	for name, r := range l.orphans {
		r.witnessed = time.Time{}
		keys = append(keys, workKey{orphanWork, name})
	}
	return keys
}

// orphanKeys returns the keys of all orphans.
func (l *ledger) orphanKeys() []workKey {
	l.mu.Lock()
	defer l.mu.Unlock()
	keys := make([]workKey, 0, len(l.orphans))
	for name := range l.orphans {
		keys = append(keys, workKey{orphanWork, name})
	}
	return keys
}

// addOrphan takes the record of an orphan and returns its key. The caller has locked mu.
func (l *ledger) addOrphan(r *record) workKey {
	key := orphanKey(r.progress.Target)
	r.unowned.target = r.progress.Target
	if r.unowned.since.IsZero() {
		r.unowned.since = time.Now()
	}
	l.orphans[key.name] = r
	l.left.put(key.name, r.progress.Target.VolumeHandle)
	return key
}

// dropOrphan is the reverse. The caller has locked mu.
func (l *ledger) dropOrphan(name string) {
	delete(l.orphans, name)
	l.left.remove(name)
}

func orphanKey(t attach.Target) workKey {
	return workKey{orphanWork, t.NodeID + "\x00" + t.VolumeHandle}
}
