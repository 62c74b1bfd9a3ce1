package volume

import (
	"slices"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

// Identity identifies a VolumeAttachment, with its node and PersistentVolume.
type Identity struct {
	Name             string
	UID              types.UID
	Node             string // name of the Kubernetes node
	PersistentVolume string // name; "" for an inline volume
}

// IdentityOf returns the Identity of a VolumeAttachment.
func IdentityOf(va *storagev1.VolumeAttachment) Identity {
	return Identity{Name: va.Name, UID: va.UID, Node: va.Spec.NodeName, PersistentVolume: attach.VolumeName(va)}
}

// Claim is what this process knows of one VolumeAttachment besides the object. It is kept until
// the object is gone. The Table's mutex guards it.
type Claim struct {
	Identity
	publication Publication
	disowned    []attach.Target // targets of its unowned publications; its note may still name one of them
	seen        aspect          // of the object, as last planned for or written here
	lost        bool            // see SetLost
	gone        time.Time       // when the object was found gone; zero: it exists
	refusals    int             // errors in a row of unpublishes at the previous target
	unsure      bool            // see IsUnsure
}

// aspect is the part of a VolumeAttachment that decides which operation it requires. A change of any other part
// (errors, metadata, managed fields) adds no item: the error that an attacher writes must not end its own
// backoff (external-attacher issue 337).
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

// claimOf returns the claim of a VolumeAttachment, nil if there is none.
func (t *Table) claimOf(name string, uid types.UID) *Claim {
	if c := t.claims[name]; c != nil && c.UID == uid {
		return c
	}
	return nil
}

// Open returns the claim of a VolumeAttachment, a new one if there is none, and notes the object
// as seen. The claim of an earlier object of that name ends.
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
	if c.seen.attached && !c.lost && c.publication.Belief == Published { // the answer to the write of the status was lost
		c.publication.Belief, c.publication.Context = Recorded, nil
	}
	return c
}

// Saw notes an object that the API server has returned to a worker as seen. It does nothing without a
// claim of that object.
func (t *Table) Saw(va *storagev1.VolumeAttachment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.claimOf(va.Name, va.UID); c != nil {
		c.seen, c.unsure = aspectOf(va, t.Finalizer), false
	}
}

// IsUnsure reports whether the API server may have removed the finalizer of a VolumeAttachment, or written "attached", without an
// answer, and has not returned the object to a worker since. The cache may not show the write yet.
func (t *Table) IsUnsure(va *storagev1.VolumeAttachment) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.claimOf(va.Name, va.UID)
	return c != nil && c.unsure
}

// Known reports whether there is a claim of that name, and whether the object is as last seen.
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

// SetLost notes whether the storage system has lost an attached volume: ListVolumes no longer reports it
// at its node. It does nothing without a claim of that object.
func (t *Table) SetLost(va *storagev1.VolumeAttachment, lost bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.claimOf(va.Name, va.UID); c != nil {
		c.lost = lost || c.lost && c.publication.Belief == Published // then the status has to get the new publish context
	}
}

// IsLost reports whether SetLost has noted the volume as lost.
func (t *Table) IsLost(va *storagev1.VolumeAttachment) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.claimOf(va.Name, va.UID)
	return c != nil && c.lost
}

// IsUnpublished reports whether the status says attached, and the volume was unpublished after its last publish.
func (t *Table) IsUnpublished(va *storagev1.VolumeAttachment) bool {
	return va.Status.Attached && t.WasUnpublished(va)
}

// WasUnpublished reports whether the volume was unpublished after its last publish.
func (t *Table) WasUnpublished(va *storagev1.VolumeAttachment) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.claimOf(va.Name, va.UID)
	return c != nil && c.publication.Belief == Unpublished
}

// Required returns the operation that a VolumeAttachment requires, Idle if there is none, and its lane.
func (t *Table) Required(d attach.Driver, va *storagev1.VolumeAttachment) (attach.Operation, queue.Lane) {
	op := d.RequiredOperation(va)
	switch {
	case op != attach.Idle:
	case d.Correction(va) == attach.Attaching && t.IsLost(va):
		return attach.Attaching, queue.DriftLane
	case t.IsUnpublished(va): // a write was lost or came late, or another client has written it
		op = d.Correction(va)
	}
	return op, queue.LaneOf(op)
}

// WasReleased reports whether this process has detached a VolumeAttachment and removed its finalizer. The last
// state that the watch reports still has the finalizer, so it looks like an object that vanished with its volume
// attached.
func (t *Table) WasReleased(uid types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.released[uid]
}

// ReadGone ends the claim of a VolumeAttachment that a live read has shown to be gone, and reports whether
// there was one. eventFollows: the watch has yet to report the deletion; Gone then does not disown the
// publication again.
func (t *Table) ReadGone(id Identity, eventFollows bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if eventFollows {
		t.released[id.UID] = true
	}
	c := t.claimOf(id.Name, id.UID)
	if c != nil {
		t.gone(c)
	}
	return c != nil
}

// Gone ends the claim of a VolumeAttachment whose deletion the watch has reported. last is the record of its last
// state, nil for none; it counts only if this process knows nothing itself. If the volume may still be
// published, the publication is unowned from now on, or from the end of the run if a worker has the item.
func (t *Table) Gone(id Identity, last *attach.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.released[id.UID] {
		delete(t.released, id.UID)
		last = nil
	}
	c := t.claimOf(id.Name, id.UID)
	if c == nil {
		if last != nil {
			t.disown(id, Publication{Record: *last, Belief: Recorded})
		}
		t.Queue.LeaveLineLocked(queue.ClaimKey(id.Name))
		return
	}
	if last != nil && !slices.Contains(c.disowned, last.Target) {
		c.publication.restore(*last)
	}
	t.gone(c)
}

// HasDisowned reports whether a VolumeAttachment that still exists has a previous target, at which its
// publication is unowned now.
func (t *Table) HasDisowned(id Identity, target attach.Target) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.claimOf(id.Name, id.UID)
	return c != nil && slices.Contains(c.disowned, target)
}

// gone ends a claim and its item, or marks both to end with the run if a worker has the item.
func (t *Table) gone(c *Claim) {
	if c.gone.IsZero() {
		c.gone = time.Now()
	}
	if !t.Queue.EndLocked(queue.ClaimKey(c.Name)) {
		return
	}
	t.close(c)
}

// close ends a claim whose object is gone. kube-controller-manager makes names of volume, driver and node, so
// the next object may have the same name: it gets a claim of its own.
func (t *Table) close(c *Claim) {
	if t.claims[c.Name] == c {
		delete(t.claims, c.Name)
	}
	if c.publication.MayBePublished() {
		t.disown(c.Identity, c.publication)
	}
}
