package volume

import (
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
)

const (
	// unconfirmedFor is how long an unowned publication is kept that another process had to
	// see to: longer than a storage system is out of order.
	unconfirmedFor = 24 * time.Hour
	// refusalsToGiveUp is how many definitive answers in a row end the detach of an unowned
	// publication: a driver that has just started may not have found its nodes.
	refusalsToGiveUp = 10
)

// Unowned is a publication that no VolumeAttachment owns, as far as this process knows: its
// VolumeAttachment is gone, or wants the volume at another target now. Nobody else knows of it.
type Unowned struct {
	Publication
	Left  Identity  // the VolumeAttachment that left it
	Since time.Time // when this process came to know of it

	Failures int    // in a row
	Error    string // the last one
	// Unconfirmed is since when another process had to see to it; zero: this one has.
	Unconfirmed time.Time
	// Gap is when the last term ended after which another process may have worked for the driver,
	// until Confirm; zero: there was none.
	Gap time.Time

	times    int       // how often it was left
	refusals int       // definitive answers in a row, up to the last try
	refused  time.Time // the first of them
	waits    time.Time // since when it is not tried because of a possible owner; zero if it is
	answered time.Time // when the driver first answered an unpublish
	absences int       // listings in a row that have the volume, and not at this node ID
}

// absencesToEnd is how many listings in a row end an unowned publication.
const absencesToEnd = 2

// Key returns the key of the entry that detaches it.
func (u *Unowned) Key() Key { return unownedKey(u.Target) }

// place returns where the entry calls the driver.
func (u *Unowned) place() Place {
	return Place{Target: u.Target, Node: u.Left.Node, Shared: u.Nodes == attach.MultiNode}
}

// definitive reports whether the driver has answered that it does not know the volume or the
// node, so that another try cannot end otherwise. InvalidArgument may be about secrets that are
// missing: it counts only if it is known which secret belongs to the call.
func definitive(err error, secretKnown bool) bool {
	switch status.Code(err) {
	case codes.NotFound:
		return true
	case codes.InvalidArgument:
		return secretKnown
	}
	return false
}

// isAnswer reports whether an error of a call is surely the driver's own: the others also say that no
// answer has come.
func isAnswer(err error) bool {
	switch status.Code(err) {
	case codes.DeadlineExceeded, codes.Canceled, codes.Unavailable:
		return false
	}
	return true
}

// failed takes in a try that has failed.
func (u *Unowned) failed(err error, now time.Time) {
	u.Failures++
	if call := (*attach.CallError)(nil); u.answered.IsZero() && errors.As(err, &call) && isAnswer(err) {
		u.answered = now
	}
	u.waits = time.Time{}
	u.Error = csiclient.Truncate(err.Error(), csiclient.MaxText)
	if !definitive(err, u.SecretKnown) {
		u.refusals = 0
		return
	}
	if u.refusals++; u.refusals == 1 {
		u.refused = now
	}
}

// Hopeless reports whether the volume is not to be detached any more: the driver has given
// definitive answers for stuckAfter, all of them in a session that is as old, or for longer than
// a driver can need to find its nodes. session is when the session began.
func (u *Unowned) Hopeless(stuckAfter time.Duration, session, now time.Time) bool {
	if u.refusals < refusalsToGiveUp {
		return false
	}
	refused := now.Sub(u.refused)
	return refused >= stuckAfter && now.Sub(session) >= stuckAfter || refused >= unconfirmedFor
}

// withholds reports whether a PersistentVolume keeps its finalizer because of this: not for
// ever, if the volume cannot be detached or its driver is away.
func (u *Unowned) withholds(stuckAfter time.Duration, now time.Time) bool {
	return now.Sub(u.Since) < stuckAfter
}

// UnownedFailed takes in that the detach of an unowned publication has failed, and returns how it
// stands, and whether there is still one at the target: a listing may have ended it meanwhile.
func (t *Table) UnownedFailed(target attach.Target, err error, now time.Time) (Unowned, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.unowned(target)
	if u == nil {
		return Unowned{}, false
	}
	u.failed(err, now)
	return *u, true
}

// UnownedWaits notes why an unowned publication is not detached now, and returns for how long that
// has been so.
func (t *Table) UnownedWaits(target attach.Target, why error, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.unowned(target)
	if u == nil {
		return 0
	}
	if u.waits.IsZero() {
		u.waits = now
	}
	u.Error = csiclient.Truncate(why.Error(), csiclient.MaxText)
	return now.Sub(u.waits)
}

// Listed takes in a listing of the driver's volumes, and returns the unowned publications that it ends.
// has says whether the listing has a volume with its nodes, and whether it has it at a node ID. began is
// when the listing began, timeout the longest that a call may take: a publish of before the driver's
// first answer to an unpublish may still have its effect for so long.
func (t *Table) Listed(has func(attach.Target) (listed, there bool), began time.Time, timeout time.Duration) []attach.Target {
	t.mu.Lock()
	defer t.mu.Unlock()
	var ended []attach.Target
	for _, v := range t.volumes {
		for _, u := range v.unowned {
			listed, there := has(u.Target)
			if u.answered.IsZero() || began.Sub(u.answered) < timeout || !listed || there {
				u.absences = 0
				continue
			}
			if u.absences++; u.absences == absencesToEnd {
				ended = append(ended, u.Target)
			}
		}
	}
	for _, target := range ended {
		t.resolve(target)
	}
	return ended
}
