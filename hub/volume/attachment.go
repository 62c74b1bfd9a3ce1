package volume

import (
	"slices"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

// Attachment is what this process knows of one VolumeAttachment besides the object. It is kept until
// the object is gone. The Table's mutex guards all but the Identity: others read a copy (Table.Look).
type Attachment struct {
	Identity
	Publication
	// Disowned are the previous targets at which its publications are dangling now. Its note may still name one of them.
	Disowned []attach.Target
	// Lost: the storage system has lost the attached volume. ListVolumes no longer reports it on its node.
	Lost bool
	// Unsure: a write had no answer, or found another object than the cache has, and the API server has not returned the object to a
	// worker since. The cache may not show it yet.
	Unsure bool

	seen     aspect    // of the object, as last planned for or written here
	gone     time.Time // when the object was found gone; zero: it exists
	refusals int       // errors in a row of unpublishes at the previous target
}

// Belief is what is known about whether a volume is published at a target.
type Belief int8

const (
	Unknown     Belief = iota // nothing was called, and no object records anything
	Uncertain                 // ControllerPublishVolume was called, and has not succeeded
	Published                 // it succeeded, and the status does not record it yet
	Recorded                  // the status, or another object, records it
	Unpublished               // ControllerUnpublishVolume succeeded after it
)

// Publication is what this process believes about a volume at one target. The zero value knows nothing.
type Publication struct {
	attach.Record
	Belief Belief
	// NodeFull: it is Uncertain, and the last answer to the publish was that the node has no place.
	NodeFull bool
	// Context is the publish context, until it is in the status. Secrets are those of the last publish
	// that succeeded, for an unpublish when the Secret is gone (rook issue 16956); see DropSecrets. Both
	// are kept in memory only, and never compared.
	Context, Secrets map[string]string
}

// MayBePublished reports whether the volume may be published at the target: a publish succeeded,
// or ended in an error or a timeout, which prove nothing, and no unpublish has succeeded since.
func (p *Publication) MayBePublished() bool {
	return p.Belief == Uncertain || p.Belief == Published || p.Belief == Recorded
}

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

// aspect is the part of a VolumeAttachment that decides which operation it requires. A change of any other part
// (errors, metadata, managed fields) adds no item: the error that an attacher writes must not end its own
// backoff (external-attacher issue 337).
type aspect struct {
	deleting  bool
	attached  bool
	finalizer bool
	noted     attach.Target
}

func (t *Table) aspectOf(va *storagev1.VolumeAttachment) aspect {
	return aspect{
		deleting:  va.DeletionTimestamp != nil,
		attached:  va.Status.Attached,
		finalizer: attach.HasFinalizer(va.Finalizers, t.Finalizer),
		noted:     attach.NotedTarget(va),
	}
}

// attachment returns what is known of a VolumeAttachment, nil for nothing.
func (t *Table) attachment(name string, uid types.UID) *Attachment {
	if a := t.attachments[name]; a != nil && a.UID == uid {
		return a
	}
	return nil
}

// Look returns a copy of what is known of a VolumeAttachment, the zero value for nothing.
func (t *Table) Look(name string, uid types.UID) Attachment {
	defer t.lock()()
	if a := t.attachment(name, uid); a != nil {
		return *a
	}
	return Attachment{}
}

// Attachments returns copies of all Attachments.
func (t *Table) Attachments() []Attachment {
	defer t.lock()()
	return copies(t.attachments)
}

// copies returns copies of the values of a map, in any order.
func copies[K comparable, V any](all map[K]*V) []V {
	c := make([]V, 0, len(all))
	for _, v := range all {
		c = append(c, *v)
	}
	return c
}

// Open returns the Attachment of a VolumeAttachment, a new one if there is none, and notes the object
// as seen. The Attachment of an earlier object of that name ends.
func (t *Table) Open(va *storagev1.VolumeAttachment) *Attachment {
	defer t.lock()()
	a := t.attachments[va.Name]
	if a != nil && a.UID != va.UID {
		t.close(a)
		a = nil
	}
	if a == nil {
		a = &Attachment{Identity: IdentityOf(va)}
		t.attachments[va.Name] = a
	}
	a.seen = t.aspectOf(va)
	if a.seen.attached && !a.Lost && a.Belief == Published { // the answer to the write of the status was lost
		a.Belief, a.Context = Recorded, nil
	}
	return a
}

// Saw notes an object as seen by a worker. surely: the API server has returned it just now. It does nothing without an
// Attachment of that object.
func (t *Table) Saw(va *storagev1.VolumeAttachment, surely bool) {
	defer t.lock()()
	if a := t.attachment(va.Name, va.UID); a != nil {
		a.seen, a.Unsure = t.aspectOf(va), a.Unsure && !surely
	}
}

// IsUnchanged reports whether there is an Attachment of a VolumeAttachment, and the object is as last seen.
func (t *Table) IsUnchanged(va *storagev1.VolumeAttachment) bool {
	defer t.lock()()
	a := t.attachment(va.Name, va.UID)
	return a != nil && a.seen == t.aspectOf(va)
}

// Required returns the operation that a VolumeAttachment requires, Idle if there is none, and its lane.
func (t *Table) Required(d attach.Driver, va *storagev1.VolumeAttachment) (attach.Operation, queue.Lane) {
	believed := t.Look(va.Name, va.UID)
	// Unpublished, and the status says attached: a write was lost or came late, or another client has written it.
	op := d.Required(attach.Inputs{VolumeAttachment: va, Lost: believed.Lost, Unpublished: believed.Belief == Unpublished})
	if op == attach.Attaching && believed.Lost && d.RequiredOperation(va) == attach.Idle {
		return op, queue.DriftLane
	}
	return op, queue.LaneOf(op)
}

// SetLost notes whether the storage system has lost an attached volume. It does nothing without an Attachment of
// that object.
func (t *Table) SetLost(va *storagev1.VolumeAttachment, lost bool) {
	defer t.lock()()
	if a := t.attachment(va.Name, va.UID); a != nil {
		a.Lost = lost || a.Lost && a.Belief == Published // then the status must get the new publish context
	}
}

// Restore takes the record of the objects as the publication, if this process knows nothing itself.
func (t *Table) Restore(a *Attachment, r attach.Record) {
	defer t.lock()()
	a.restore(r)
}

func (a *Attachment) restore(r attach.Record) {
	if a.Belief == Unknown && !slices.Contains(a.Disowned, r.Target) {
		a.Publication = Publication{Record: r, Belief: Recorded}
	}
}

// Gone ends the Attachment of a VolumeAttachment whose deletion the watch has reported. last is the record of its last
// state, nil for none; it counts only if this process knows nothing itself. If the volume may still be
// published, the publication is dangling from now on, or from the end of the run if a worker has the item.
// noted: without a record, its last state still shows that an attacher has detached the volume.
func (t *Table) Gone(id Identity, last *attach.Record, noted bool) {
	defer t.lock()()
	released, a := t.released[id.UID], t.attachment(id.Name, id.UID)
	delete(t.released, id.UID)
	if a != nil {
		if last != nil && !released {
			a.restore(*last)
		}
		t.gone(a)
		return
	}
	switch {
	case released:
	case last != nil:
		t.disown(id, Publication{Record: *last, Belief: Recorded})
	case noted: // by another process
		t.Queue.DetachedLocked("", id.Node)
	}
	if t.attachments[id.Name] == nil {
		t.Queue.DropLocked(queue.AttachmentKey(id.Name))
	}
}

// Missing ends the Attachment of a VolumeAttachment, or of any with its name if uid is "", and reports whether there was one: the
// cache or a live read has shown that the object is gone. An object that gets its name later adds the item.
func (t *Table) Missing(name string, uid types.UID) bool {
	defer t.lock()()
	a := t.attachments[name]
	if a == nil || uid != "" && a.UID != uid {
		return false
	}
	if a.gone.IsZero() { // the event may follow; it knows less than this process, for example which Secret was sent
		t.released[a.UID] = a.Belief != Unknown
	}
	t.gone(a)
	return true
}

// gone ends an Attachment and its item, or marks both to end with the run if a worker has the item.
func (t *Table) gone(a *Attachment) {
	if a.gone.IsZero() {
		a.gone = time.Now()
	}
	if t.Queue.DropLocked(queue.AttachmentKey(a.Name)) {
		t.close(a)
	}
}

// close ends an Attachment whose object is gone. kube-controller-manager makes names of volume, driver and node, so
// the next object may have the same name: it gets an Attachment of its own.
func (t *Table) close(a *Attachment) {
	if t.attachments[a.Name] == a {
		delete(t.attachments, a.Name)
	}
	if a.MayBePublished() {
		t.disown(a.Identity, a.Publication)
	}
}
