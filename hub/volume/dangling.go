package volume

import (
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

// Dangling is a publication that no VolumeAttachment owns, as far as this process knows: its former owner
// is gone, or requires the volume at another target now. Nobody else knows of it.
type Dangling struct {
	Publication
	FormerOwner Identity
	Since       time.Time // when this process came to know of it
	FromList    bool      // only the driver's list shows it: FormerOwner has no name

	Failures int       // in a row
	Error    string    // the last one
	Failed   time.Time // when the last one was
	// Unconfirmed is the time since which another process must detach it; zero: this process must.
	Unconfirmed time.Time
	// Gap is the end of the last term, if another process may have worked for the driver since. Confirm
	// resets it.
	Gap time.Time

	timesDisowned int
	refusals      int       // definitive answers in a row, up to the last try
	refused       time.Time // the first of them
	answered      time.Time // when the driver first answered an unpublish
	absences      int       // listings in a row that have the volume, and not at this node ID
}

// Key returns the key of the item that detaches it.
func (u *Dangling) Key() queue.Key { return queue.DanglingKey(u.Target) }

// Destination returns where the item calls the driver.
func (u *Dangling) Destination() queue.Destination {
	return queue.Destination{Target: u.Target, Node: u.FormerOwner.Node, Shared: u.Nodes == attach.MultiNode}
}

// disown makes a publication of a VolumeAttachment dangling, and adds its detach. Earlier failures still count
// if the same VolumeAttachment disowned it before.
func (t *Table) disown(id Identity, p Publication) *Dangling {
	u, times := t.dangling[p.Target], 1
	if u != nil {
		times += u.timesDisowned
	}
	if u == nil || u.FormerOwner.UID != id.UID {
		u = &Dangling{Since: time.Now()}
		t.dangling[p.Target] = u
	}
	u.Publication, u.FormerOwner, u.timesDisowned = p, id, times
	u.Unconfirmed, u.Gap = time.Time{}, time.Time{}
	u.answered, u.absences = time.Time{}, 0 // it may have been published since
	t.Queue.AddLocked(u.Key(), queue.DetachLane, u.Destination())
	return u
}

// resolve ends a dangling publication, if there is one at the target: it was unpublished, or has an
// owner.
func (t *Table) resolve(target attach.Target) {
	if t.dangling[target] != nil {
		delete(t.dangling, target)
		t.Queue.DropLocked(queue.DanglingKey(target))
	}
}

// Detached ends a dangling publication that was detached from its target, on a Kubernetes node. Attaches of the volume that
// back off are tried again at once. But after the detach of a publication that only a listing has found they wait: a
// driver may report the volume elsewhere, and refuse the attach, without end.
func (t *Table) Detached(target attach.Target, node string) {
	defer t.lock()()
	handle := target.VolumeHandle
	if u := t.dangling[target]; u == nil || u.FromList {
		handle = ""
	}
	t.resolve(target)
	t.Queue.DetachedLocked(handle, node)
}

// Resolve ends a dangling publication for a reason that was found after seen was returned. It does nothing if the
// publication was disowned again since: its owner, say, may have vanished.
func (t *Table) Resolve(seen Dangling) {
	defer t.lock()()
	if u := t.dangling[seen.Target]; u != nil && u.timesDisowned == seen.timesDisowned {
		t.resolve(seen.Target)
	}
}

// Dangling returns a copy of a dangling publication, and whether there is one at the target.
func (t *Table) Dangling(target attach.Target) (Dangling, bool) {
	defer t.lock()()
	if u := t.dangling[target]; u != nil {
		return *u, true
	}
	return Dangling{}, false
}

// AllDangling returns copies of all dangling publications.
func (t *Table) AllDangling() []Dangling {
	defer t.lock()()
	return copies(t.dangling)
}

// How the detach of a dangling publication fails, and when it is given up.

// refusalsToGiveUp is the number of definitive answers in a row that end the detach of a dangling
// publication: a driver that has just started may not have found its nodes yet.
const refusalsToGiveUp = 10

// DanglingFailed notes why the detach of a dangling publication has failed, or was not tried. It returns a copy of the
// publication, and whether there is still one at the target: a listing may have ended it meanwhile.
func (t *Table) DanglingFailed(target attach.Target, err error, tried bool, now time.Time) (Dangling, bool) {
	defer t.lock()()
	u := t.dangling[target]
	if u == nil {
		return Dangling{}, false
	}
	if u.Error = csiclient.Truncate(err.Error(), csiclient.MaxText); !tried {
		return *u, true
	}
	u.Failures, u.Failed = u.Failures+1, now
	code, call := status.Code(err), (*attach.CallError)(nil)
	// A call without an answer of the driver ends with one of these codes too.
	unanswered := code == codes.DeadlineExceeded || code == codes.Canceled || code == codes.Unavailable
	if u.answered.IsZero() && errors.As(err, &call) && !unanswered {
		u.answered = now
	}
	// The driver does not know the volume or the node: another try would fail too. InvalidArgument may be about missing
	// secrets, and counts only if the Secret of the call is known.
	if u.refusals++; code != codes.NotFound && (code != codes.InvalidArgument || !u.SecretKnown) {
		u.refusals = 0
	} else if u.refusals == 1 {
		u.refused = now
	}
	return *u, true
}

// Hopeless reports whether further tries to detach the volume make no sense. The driver has given definitive
// answers for stuckAfter, and its session, which began at session, is as old; or it has given them for a day,
// which is longer than any driver needs to find its nodes.
func (u *Dangling) Hopeless(stuckAfter time.Duration, session, now time.Time) bool {
	refused := now.Sub(u.refused)
	return u.refusals >= refusalsToGiveUp && (refused >= stuckAfter && now.Sub(session) >= stuckAfter || refused >= unconfirmedFor)
}

// While another process has the lease, it may detach what is dangling here.

// unconfirmedFor is how long a dangling publication is kept that another process must detach: longer than
// an outage of a storage system.
const unconfirmedFor = 24 * time.Hour

// Close ends a term whose workers have ended.
func (t *Table) Close() {
	t.DropDanglingFromList()
	defer t.lock()()
	t.Queue.CloseLocked()
	t.closed = time.Now()
}

// Forget drops the Attachments: another process may have worked for their VolumeAttachments since. It keeps dangling
// publications, because no other process knows of them; the VolumeAttachments that may own one are read before
// its detach. It is called before Begin.
func (t *Table) Forget(now time.Time) {
	defer t.lock()()
	for _, a := range t.attachments {
		if !a.gone.IsZero() && a.MayBePublished() { // the lease was lost before its worker had ended
			t.disown(a.Identity, a.Publication).Unconfirmed = now
		}
	}
	clear(t.attachments)
	clear(t.released)
	for _, u := range t.dangling {
		if u.Gap = t.closed; !u.Unconfirmed.IsZero() && now.Sub(u.Unconfirmed) > unconfirmedFor {
			t.resolve(u.Target) // another process must have detached it by now
		}
	}
}

// ObserveDeletion notes the publication of a VolumeAttachment that vanished while another process worked for the
// driver: that process may end before it detaches the volume.
func (t *Table) ObserveDeletion(id Identity, last attach.Record, now time.Time) {
	defer t.lock()()
	if u := t.dangling[last.Target]; u != nil {
		u.timesDisowned++
	} else {
		t.disown(id, Publication{Record: last, Belief: Recorded}).Unconfirmed = now
	}
}

// ObserveDetach ends a dangling publication because another process has detached the volume at that
// target, for the VolumeAttachment with the uid. A publication that this process itself has disowned for that
// VolumeAttachment stays dangling.
func (t *Table) ObserveDetach(target attach.Target, uid types.UID) {
	defer t.lock()()
	if u := t.dangling[target]; u != nil && (!u.Unconfirmed.IsZero() || !t.closed.IsZero() && uid != u.FormerOwner.UID) {
		t.resolve(target)
	}
}

// Confirm makes this process responsible for all dangling publications.
func (t *Table) Confirm() {
	defer t.lock()()
	for _, u := range t.dangling {
		u.Unconfirmed, u.Gap = time.Time{}, time.Time{}
	}
}

// What the driver's list of volumes shows.

// absencesToEnd is the number of listings in a row that end a dangling publication.
const absencesToEnd = 2

// Listing begins or ends a listing of the driver's volumes. There is one at a time.
func (t *Table) Listing(begins bool) {
	defer t.lock()()
	if t.touched = nil; begins {
		t.touched = map[attach.Target]bool{}
	}
}

// Touched reports whether there was an item at a target since the listing began, or is an item or a dangling publication
// now: what the listing says about the target may be out of date then.
func (t *Table) Touched(target attach.Target) bool {
	defer t.lock()()
	return t.touched[target] || t.dangling[target] != nil || t.Queue.IsAtLocked(target)
}

// AddDanglingFromList makes a publication dangling that only the driver reports, and adds its detach. No VolumeAttachment
// requires the volume there; id has the node and the PersistentVolume alone. It does nothing if the publication is
// dangling already.
func (t *Table) AddDanglingFromList(id Identity, r attach.Record) {
	defer t.lock()()
	if t.dangling[r.Target] == nil {
		t.disown(id, Publication{Record: r, Belief: Recorded}).FromList = true
	}
}

// DropDanglingFromList ends the publications that AddDanglingFromList has made dangling: this process has not published
// them, and another listing shows them again.
func (t *Table) DropDanglingFromList() {
	defer t.lock()()
	for _, u := range t.dangling {
		if u.FromList {
			t.resolve(u.Target)
		}
	}
}

// ResolveDanglingNotInList takes a listing of the driver's volumes, and returns the dangling publications that it ends. A
// publication FromList ends as soon as a listing shows that it is not there; any other after absencesToEnd listings. has
// returns whether the listing has a volume with its nodes, and whether it has it at a node ID. began is when the listing began,
// timeout the longest that a call may take: a publish from before the driver's first answer to an unpublish may take effect for
// so long.
func (t *Table) ResolveDanglingNotInList(has func(attach.Target) (listed, there bool), began time.Time, timeout time.Duration) []Dangling {
	defer t.lock()()
	var ended []Dangling
	for _, u := range t.dangling {
		listed, there := has(u.Target)
		found := u.FromList && u.Since.Before(began)
		tried := !u.answered.IsZero() && began.Sub(u.answered) >= timeout
		if !listed || there || !found && !tried {
			u.absences = 0
			continue
		}
		if u.absences++; found || u.absences == absencesToEnd {
			ended = append(ended, *u)
			t.resolve(u.Target)
		}
	}
	return ended
}
