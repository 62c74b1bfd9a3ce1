package volume

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

// Table has what is believed of all volumes of one driver: Attachments and dangling publications. It outlives sessions, terms, modes
// and the driver's absence from the configuration. Its methods are safe for concurrent use, and do not block.
type Table struct {
	Finalizer string       // of the driver
	Queue     *queue.Queue // the work for these volumes

	mu          sync.Mutex                  // guards all that follows, and Queue
	attachments map[string]*Attachment      // by name
	dangling    map[attach.Target]*Dangling // dangling publications
	closed      time.Time                   // when Close was called; zero: not yet
	touched     map[attach.Target]bool      // during a listing; nil: there is none
	// released are the VolumeAttachments whose last state, which the watch has yet to report, says nothing new: this process has removed
	// their finalizers, which that state still has, or knows already that they are gone.
	released map[types.UID]bool
}

// NewTable returns an empty Table.
func NewTable(finalizer string) *Table {
	t := &Table{Finalizer: finalizer, attachments: map[string]*Attachment{}, dangling: map[attach.Target]*Dangling{}, released: map[types.UID]bool{}}
	t.Queue = queue.New(&t.mu, (*beliefs)(t))
	return t
}

// lock locks the mutex. It returns what unlocks it.
func (t *Table) lock() func() {
	t.mu.Lock()
	return t.mu.Unlock
}

// beliefs implements queue.Beliefs.
type beliefs Table

// NeedsCapacity implements queue.Beliefs: the attach needs none if its volume is, or may be, published at the target.
// repair: the driver no longer reports the volume there.
func (b *beliefs) NeedsCapacity(key queue.Key, at queue.Destination, repair bool) bool {
	var believed Publication
	if a := b.attachments[key.Name]; a != nil {
		believed = a.Publication
		at.Noted = false // its worker may have written the note, and has called nothing if nothing is believed
	}
	switch {
	case repair:
		return believed.Belief != Published
	case b.dangling[at.Target] != nil:
		return false
	case believed.Belief == Unknown:
		return !at.Noted
	}
	return believed.Target != at.Target || !believed.MayBePublished() || believed.NodeFull
}

// IsSingleNode implements queue.Beliefs.
func (b *beliefs) IsSingleNode(key queue.Key, handle string) bool {
	a := b.attachments[key.Name]
	return key.Kind == queue.AttachmentKind && a != nil && a.Target.VolumeHandle == handle && a.Nodes == attach.SingleNode
}

// Touched implements queue.Beliefs: it notes targets during a listing.
func (b *beliefs) Touched(target attach.Target) {
	if b.touched != nil && target.VolumeHandle != "" {
		b.touched[target] = true
	}
}

// Ended implements queue.Beliefs: it ends an Attachment whose object is gone.
func (b *beliefs) Ended(key queue.Key) bool {
	a := b.attachments[key.Name]
	if key.Kind != queue.AttachmentKind || a == nil || a.gone.IsZero() {
		return false
	}
	(*Table)(b).close(a)
	return true
}

// Secrets returns the secrets of all publications.
func (t *Table) Secrets() (all []map[string]string) {
	t.each(func(p *Publication) {
		if p.Secrets != nil {
			all = append(all, p.Secrets)
		}
	})
	return all
}

// DropSecrets drops the secrets of all publications.
func (t *Table) DropSecrets() { t.each(func(p *Publication) { p.Secrets = nil }) }

// HasPublications reports whether a volume may be published, as far as this process knows from calls or from records.
func (t *Table) HasPublications() (has bool) {
	t.each(func(p *Publication) { has = has || p.MayBePublished() })
	return has
}

// each calls do, under the mutex, with what is believed of each volume.
func (t *Table) each(do func(*Publication)) {
	defer t.lock()()
	for _, a := range t.attachments {
		do(&a.Publication)
	}
	for _, u := range t.dangling {
		do(&u.Publication)
	}
}

// OwesDetach reports whether this process must detach a dangling publication, or perhaps must when a
// worker has ended.
func (t *Table) OwesDetach() bool {
	defer t.lock()()
	owes := false
	for _, u := range t.dangling {
		owes = owes || u.Unconfirmed.IsZero()
	}
	for _, a := range t.attachments {
		owes = owes || !a.gone.IsZero()
	}
	return owes
}

// Withholds reports whether a PersistentVolume must keep its finalizer: a VolumeAttachment of it is not known
// to have ended, or a publication of its volume is dangling. Both count for at most stuckAfter: while
// the driver cannot be reached they may never end.
func (t *Table) Withholds(persistentVolume, handle string, stuckAfter time.Duration, now time.Time) (named, published bool) {
	defer t.lock()()
	for _, a := range t.attachments {
		named = named || a.PersistentVolume == persistentVolume && (a.gone.IsZero() || now.Sub(a.gone) < stuckAfter)
	}
	for _, u := range t.dangling {
		published = published || u.Target.VolumeHandle == handle && now.Sub(u.Since) < stuckAfter
	}
	return named, published
}
