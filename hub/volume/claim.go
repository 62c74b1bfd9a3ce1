package volume

import (
	"slices"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// Identity names a VolumeAttachment and what it is about.
type Identity struct {
	Name             string
	UID              types.UID
	Node             string // name of the Kubernetes node
	PersistentVolume string // name; "" for an inline volume
}

// IdentityOf returns that of an object.
func IdentityOf(va *storagev1.VolumeAttachment) Identity {
	return Identity{Name: va.Name, UID: va.UID, Node: va.Spec.NodeName, PersistentVolume: attach.VolumeName(va)}
}

// Claim is what this process knows of one VolumeAttachment besides the object. It is kept until
// the object is gone. The Table's mutex guards it.
type Claim struct {
	Identity
	publication Publication
	left        []attach.Target // where it left its publication unowned, as its note may still say
	seen        aspect          // of the object, as last decided on or written here
	lost        bool            // the storage system does not have the volume attached
	gone        time.Time
	refusals    int // errors in a row of unpublishes at the previous target
}

// aspect is all of a VolumeAttachment that decides what has to be done for it. Other changes
// (errors, metadata, managed fields) are no reason to look at it again: an attacher's own error
// must not cut its own backoff (external-attacher issue 337).
type aspect struct {
	uid       types.UID
	deleting  bool
	attached  bool
	finalizer bool
	noted     attach.Target
}

func aspectOf(va *storagev1.VolumeAttachment, finalizer string) aspect {
	return aspect{
		uid:       va.UID,
		deleting:  va.DeletionTimestamp != nil,
		attached:  va.Status.Attached,
		finalizer: attach.HasFinalizer(va.Finalizers, finalizer),
		noted:     attach.NotedTarget(va),
	}
}

// Open returns the claim of a VolumeAttachment, a new one if there is none, and notes the object
// as seen. A claim of an earlier object of that name ends.
func (t *Table) Open(va *storagev1.VolumeAttachment) *Claim {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.claims[va.Name]
	if c != nil && c.UID != va.UID {
		t.close(c)
		c = nil
	}
	if c == nil {
		c = &Claim{Identity: IdentityOf(va)}
		t.claims[va.Name] = c
	}
	c.seen = aspectOf(va, t.Finalizer)
	return c
}

// Saw notes an object as the API server returned it to a worker that has its entry.
func (t *Table) Saw(va *storagev1.VolumeAttachment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.claims[va.Name]; c != nil && c.UID == va.UID {
		c.seen = aspectOf(va, t.Finalizer)
	}
}

// Known reports whether there is a claim of a VolumeAttachment, and whether the object is as last
// seen.
func (t *Table) Known(va *storagev1.VolumeAttachment) (known, unchanged bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.claims[va.Name]
	return c != nil, c != nil && c.seen == aspectOf(va, t.Finalizer)
}

// ClaimView is a claim at one moment.
type ClaimView struct {
	Identity
	MayBePublished bool
}

// Claims returns all claims.
func (t *Table) Claims() []ClaimView {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]ClaimView, 0, len(t.claims))
	for _, c := range t.claims {
		all = append(all, ClaimView{c.Identity, c.publication.MayBePublished()})
	}
	return all
}

// SetLost notes whether the storage system has lost an attached volume. It does nothing without a
// claim of that object.
func (t *Table) SetLost(va *storagev1.VolumeAttachment, lost bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.claims[va.Name]; c != nil && c.UID == va.UID {
		c.lost = lost
	}
}

// IsLost reports what SetLost has noted.
func (t *Table) IsLost(va *storagev1.VolumeAttachment) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.claims[va.Name]
	return c != nil && c.UID == va.UID && c.lost
}

// LostNames returns the VolumeAttachments whose volumes are lost.
func (t *Table) LostNames() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var names []string
	for name, c := range t.claims {
		if c.lost {
			names = append(names, name)
		}
	}
	return names
}

// WasReleased reports whether this process has detached a VolumeAttachment and let it go. The last
// state that the watch reports of it has the finalizer still, and must not be taken for that of an
// object that vanished with its volume attached.
func (t *Table) WasReleased(uid types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.released[uid]
}

// ReadGone ends the claim of a VolumeAttachment that a live read has shown to be gone. eventFollows says that the
// watch has yet to report it: what the object has left is seen to now, and not once more then. It
// reports whether there was a claim of the object.
func (t *Table) ReadGone(id Identity, eventFollows bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if eventFollows {
		t.released[id.UID] = true
	}
	c := t.claims[id.Name]
	if c == nil || c.UID != id.UID {
		return false
	}
	t.gone(c)
	return true
}

// Gone ends the claim of a VolumeAttachment that the watch has reported as gone. last is what its last state
// records as published, nil for nothing: it counts where this process knows nothing itself. What
// the object has left published is unowned from now on; if a worker has it, when that has ended.
func (t *Table) Gone(id Identity, last *attach.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.released[id.UID] {
		delete(t.released, id.UID)
		last = nil
	}
	c := t.claims[id.Name]
	if c == nil || c.UID != id.UID {
		if last != nil {
			t.leave(id, Publication{Record: *last, Belief: Recorded})
		}
		return
	}
	if last != nil && !slices.Contains(c.left, last.Target) {
		c.publication.restore(*last)
	}
	t.gone(c)
}

// Missing ends the claim of a VolumeAttachment that is not there any more, and reports whether
// there was one.
func (t *Table) Missing(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.claims[name]
	if c != nil {
		t.gone(c)
	}
	return c != nil
}

// gone ends a claim, and its entry. While a worker has that, the end of its run does.
func (t *Table) gone(c *Claim) {
	if c.gone.IsZero() {
		c.gone = time.Now()
	}
	e := t.entries[ClaimKey(c.Name)]
	if e != nil && e.state == Running {
		e.again = true // another object may have the name by now
		return
	}
	t.close(c)
	if e != nil {
		t.withdraw(e)
		t.drop(e)
	}
}

// close ends a claim whose object is gone. The names are made of volume, driver and node, and
// come again: the next object of the name starts afresh.
func (t *Table) close(c *Claim) {
	if t.claims[c.Name] == c {
		delete(t.claims, c.Name)
	}
	if c.publication.MayBePublished() {
		t.leave(c.Identity, c.publication)
	}
}
