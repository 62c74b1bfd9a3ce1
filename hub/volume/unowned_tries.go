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
	// refusalsToGiveUp is the number of definitive answers in a row that end the detach of an unowned
	// publication: a driver that has just started may not have found its nodes yet.
	refusalsToGiveUp = 10
	// absencesToEnd is the number of listings in a row that end an unowned publication.
	absencesToEnd = 2
)

// definitive reports whether the driver has answered that it does not know the volume or the node, so that
// another try would fail too. InvalidArgument may be about missing secrets: it counts only if the Secret of the
// call is known.
func definitive(err error, secretKnown bool) bool {
	code := status.Code(err)
	return code == codes.NotFound || code == codes.InvalidArgument && secretKnown
}

// isAnswer reports whether an error of a call can only be the driver's own. A call without an answer ends
// with one of the other codes.
func isAnswer(err error) bool {
	switch status.Code(err) {
	case codes.DeadlineExceeded, codes.Canceled, codes.Unavailable:
		return false
	}
	return true
}

// noteFailure notes a try that has failed.
func (u *Unowned) noteFailure(err error, now time.Time) {
	u.Failures, u.Failed = u.Failures+1, now
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

// Hopeless reports whether further tries to detach the volume make no sense. The driver has given definitive
// answers for stuckAfter, and its session, which began at session, is as old; or it has given them for a day,
// which is longer than any driver needs to find its nodes.
func (u *Unowned) Hopeless(stuckAfter time.Duration, session, now time.Time) bool {
	if u.refusals < refusalsToGiveUp {
		return false
	}
	refused := now.Sub(u.refused)
	return refused >= stuckAfter && now.Sub(session) >= stuckAfter || refused >= unconfirmedFor
}

// UnownedFailed notes that the detach of an unowned publication has failed. It returns a copy of the
// publication, and whether there is still one at the target: a listing may have ended it meanwhile.
func (t *Table) UnownedFailed(target attach.Target, err error, now time.Time) (Unowned, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.unowned(target)
	if u == nil {
		return Unowned{}, false
	}
	u.noteFailure(err, now)
	return *u, true
}

// UnownedWaits notes why an unowned publication is not detached now, and returns for how long it has not been
// tried.
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

// Listed takes a listing of the driver's volumes, and returns the unowned publications that it ends. A publication that only
// an earlier listing has shown ends as soon as a listing shows that it is not there. has returns whether the listing has a volume with its nodes, and whether it has it at a
// node ID. began is when the listing began, timeout the longest that a call may take: a publish from
// before the driver's first answer to an unpublish may take effect for so long.
func (t *Table) Listed(has func(attach.Target) (listed, there bool), began time.Time, timeout time.Duration) []Unowned {
	t.mu.Lock()
	defer t.mu.Unlock()
	var ended []Unowned
	for u := range t.eachUnowned() {
		listed, there := has(u.Target)
		if u.Listed && listed && !there && u.Since.Before(began) {
			ended = append(ended, *u)
			t.resolve(u.Target)
			continue
		}
		if u.answered.IsZero() || began.Sub(u.answered) < timeout || !listed || there {
			u.absences = 0
			continue
		}
		if u.absences++; u.absences == absencesToEnd {
			ended = append(ended, *u)
			t.resolve(u.Target)
		}
	}
	return ended
}
