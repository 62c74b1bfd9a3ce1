package volume

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

// Table has what is believed of all volumes of one driver: claims and unowned publications. It outlives sessions, terms, modes
// and the driver's absence from the configuration. Its methods are safe for concurrent use, and do not block.
type Table struct {
	Finalizer string       // of the driver
	Queue     *queue.Queue // the work for these volumes

	mu       sync.Mutex                            // guards all that follows, and Queue
	dangling map[string]map[attach.Target]*Unowned // unowned publications, by volume handle
	claims   map[string]*Claim                     // by name of the VolumeAttachment
	swept    time.Time                             // when dropUnconfirmed ran last
	released map[types.UID]bool                    // see WasReleased
	closed   time.Time                             // when Close was called; zero: not yet
	touched  map[attach.Target]bool                // see Listing; nil: there is none
}

// NewTable returns an empty Table.
func NewTable(finalizer string) *Table {
	t := &Table{Finalizer: finalizer, dangling: map[string]map[attach.Target]*Unowned{}, claims: map[string]*Claim{}, released: map[types.UID]bool{}}
	t.Queue = queue.New(&t.mu, (*beliefs)(t))
	return t
}

// Close ends a term whose workers have ended.
func (t *Table) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Queue.CloseLocked()
	t.dropFound()
	t.closed = time.Now()
}

// beliefs implements queue.Beliefs.
type beliefs Table

// NeedsPlace implements queue.Beliefs.
func (b *beliefs) NeedsPlace(key queue.Key, at queue.Place, repair bool) bool {
	t := (*Table)(b)
	var believed Publication
	if c := t.claims[key.Name]; c != nil {
		believed = c.publication
		at.Noted = false // its worker may have written the note, and has called nothing if nothing is believed
	}
	return needsPlace(believed, repair, t.unowned(at.Target) != nil, at)
}

// needsPlace reports whether an attach needs a place on its node: it has one if its volume is, or may be, published at
// the target. lost says that the driver no longer reports the volume there, dangling that an unowned publication is there.
// It is pure.
func needsPlace(believed Publication, lost, dangling bool, at queue.Place) bool {
	switch {
	case lost:
		return believed.Belief != Published
	case dangling:
		return false
	case believed.Belief == Unknown:
		return !at.Noted
	}
	return believed.Target != at.Target || !believed.MayBePublished() || believed.NodeFull
}

// IsSingleNode implements queue.Beliefs.
func (b *beliefs) IsSingleNode(key queue.Key, handle string) bool {
	c := b.claims[key.Name]
	return key.Kind == queue.ClaimKind && c != nil && c.publication.nodesOf(handle) == attach.SingleNode
}

// Touched implements queue.Beliefs: it notes targets while there is a Listing.
func (b *beliefs) Touched(target attach.Target) {
	if b.touched != nil && target.VolumeHandle != "" {
		b.touched[target] = true
	}
}

// Ended implements queue.Beliefs: it ends a claim whose object is gone.
func (b *beliefs) Ended(key queue.Key) bool {
	c := b.claims[key.Name]
	if key.Kind != queue.ClaimKind || c == nil || c.gone.IsZero() {
		return false
	}
	(*Table)(b).close(c)
	return true
}

// Missing ends the claim of a VolumeAttachment with its run: after the run began, or after ClearChanged, the cache did not have
// the object any more. An object that gets its name later asks for the item.
func (t *Table) Missing(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.claims[name]; c != nil && c.gone.IsZero() {
		c.gone = time.Now()
	}
}

// Secrets returns the secrets of all publications.
func (t *Table) Secrets() []map[string]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []map[string]string
	for _, c := range t.claims {
		if c.publication.Secrets != nil {
			all = append(all, c.publication.Secrets)
		}
	}
	for u := range t.eachUnowned() {
		if u.Secrets != nil {
			all = append(all, u.Secrets)
		}
	}
	return all
}

// DropSecrets drops the secrets of all publications.
func (t *Table) DropSecrets() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.claims {
		c.publication.Secrets = nil
	}
	for u := range t.eachUnowned() {
		u.Secrets = nil
	}
}

// OwesDetach reports whether this process has to detach an unowned publication, or may have to when a
// worker has ended.
func (t *Table) OwesDetach() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for u := range t.eachUnowned() {
		if u.Unconfirmed.IsZero() {
			return true
		}
	}
	for _, c := range t.claims {
		if !c.gone.IsZero() {
			return true
		}
	}
	return false
}
