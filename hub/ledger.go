package hub

import (
	"maps"
	"slices"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
)

// ledger is what a driver's workers remember. It outlives a restart of the driver, and
// its absence from drivers.yaml: what was published must be unpublished, whatever
// happened in between.
type ledger struct {
	finalizer string

	mu      sync.Mutex
	records map[string]*record // by VolumeAttachment name
	orphans map[string]*record // by workKey name; volumes attached with no VolumeAttachment left
	volumes map[string]*tries  // by PersistentVolume name; failures to take the finalizer away
	// left are the names of orphans, by volume handle: each attach looks for them.
	left groups
	// vanished are the VolumeAttachments that are gone and that no worker has looked at
	// since, by the names of their PersistentVolumes: what they have left attached is
	// still to be found.
	vanished groups
	// released are the VolumeAttachments that were detached and let go here. Their last
	// state, as the watch tells it, has the finalizer still.
	released map[types.UID]bool
}

func newLedger(finalizer string) *ledger {
	return &ledger{finalizer: finalizer, records: map[string]*record{}, orphans: map[string]*record{}, volumes: map[string]*tries{},
		released: map[types.UID]bool{}}
}

// forget drops what is remembered of VolumeAttachments and volumes that another process
// has worked for since. Orphans are known to nobody else, and are kept: before one is
// detached it is asked whether somebody has it where it is. No worker may run.
func (l *ledger) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	// The lease was lost before a worker looked at them.
	for name := range l.vanished.of {
		r := l.records[name]
		if r == nil {
			continue
		}
		if r.progress.Inherit(r.told); r.progress.MayBeAttached() {
			r.tries, r.witnessed = tries{}, time.Now()
			l.addOrphan(r)
		}
	}
	clear(l.records)
	clear(l.volumes)
	l.vanished.clear()
	clear(l.released)
	l.forgetWitnessed(time.Now())
}

// get returns the record of a VolumeAttachment, nil if there is none.
func (l *ledger) get(name string) *record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.records[name]
}

// open returns the record of a VolumeAttachment, a new one if there is none, and
// notes the object as seen.
func (l *ledger) open(va *storagev1.VolumeAttachment) *record {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.records[va.Name]
	if r == nil {
		r = newRecord(va)
		l.records[va.Name] = r
	}
	r.seen = aspectOf(va, l.finalizer)
	return r
}

// adopt takes what the last state of a VolumeAttachment that is gone tells into its
// record: somebody took the finalizer that guarded an attached volume. If there is none
// it makes one, if that state tells anything. It says whether there is a record now.
func (l *ledger) adopt(decider attach.Driver, last attach.Facts) bool {
	va := last.VolumeAttachment
	var told attach.Progress
	told.AdoptLast(decider, last)
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.records[va.Name]
	if !told.MayBeAttached() || r != nil && r.uid != va.UID {
		return r != nil
	}
	if r == nil {
		r = newRecord(va)
		l.records[va.Name] = r
	}
	r.told = told
	return true
}

// setReleased notes whether a VolumeAttachment was detached and let go by this process.
func (l *ledger) setReleased(uid types.UID, released bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if released {
		l.released[uid] = true
	} else {
		delete(l.released, uid)
	}
}

// wasReleased says what setReleased has noted.
func (l *ledger) wasReleased(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.released[uid]
}

// saw notes an object as the API server returned it to a write of this process.
func (l *ledger) saw(va *storagev1.VolumeAttachment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.records[va.Name]; r != nil && r.uid == va.UID {
		r.seen = aspectOf(va, l.finalizer)
	}
}

// known says whether there is a record, and whether the object is as last seen.
func (l *ledger) known(va *storagev1.VolumeAttachment) (recorded, unchanged bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.records[va.Name]
	return r != nil, r != nil && r.seen == aspectOf(va, l.finalizer)
}

// setLost notes whether the storage system has lost an attached volume. It does
// nothing without a record of that object.
func (l *ledger) setLost(va *storagev1.VolumeAttachment, lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.records[va.Name]; r != nil && r.uid == va.UID {
		r.lost = lost
	}
}

// isLost says what setLost has noted.
func (l *ledger) isLost(va *storagev1.VolumeAttachment) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.records[va.Name]
	return r != nil && r.uid == va.UID && r.lost
}

// lostNames returns the VolumeAttachments that setLost has noted.
func (l *ledger) lostNames() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []string
	for name, r := range l.records {
		if r.lost {
			names = append(names, name)
		}
	}
	return names
}

// close forgets a VolumeAttachment that is gone, with its backoff: the next object
// of that name starts afresh (the names are made of volume, driver and node, and
// come again). If it may have left its volume attached, the record is kept as
// that of an orphan, under the key that is returned with true.
func (l *ledger) close(name string) (workKey, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.records[name]
	delete(l.records, name)
	if r == nil {
		return workKey{}, false
	}
	if r.progress.Inherit(r.told); !r.progress.MayBeAttached() {
		return workKey{}, false
	}
	r.tries = tries{}
	return l.addOrphan(r), true
}

// names returns the VolumeAttachments that there are records of.
func (l *ledger) names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.records))
}

// noteFailure notes how many tries have failed in a row, and the last error, to be shown.
func (l *ledger) noteFailure(name string, failures int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.records[name]; r != nil {
		r.failures, r.failure = failures, ""
		if err != nil {
			r.failure = csiclient.Shorten(err.Error(), csiclient.MaxWords)
		}
	}
}

// failure returns what noteFailure has noted.
func (l *ledger) failure(name string) (failures int, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.records[name]; r != nil {
		return r.failures, r.failure
	}
	return 0, ""
}

// volumeFailed counts a failure with a PersistentVolume and returns how many there
// were in a row.
func (l *ledger) volumeFailed(name string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.volumes[name] == nil {
		l.volumes[name] = &tries{}
	}
	return l.volumes[name].failed(attach.Detaching)
}

// volumeDone forgets the failures with a PersistentVolume.
func (l *ledger) volumeDone(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.volumes, name)
}
