package lease

import (
	"fmt"
	"time"
)

// decision is what to do in a situation.
type decision struct {
	take       bool
	passedOver string    // if take: the owner that did not take the lease itself, if any
	reason     string    // if not take: why, for people
	again      time.Time // if not take: when to decide again if nothing changes; zero: only after a change
}

// situation is what the decision to take a lease depends on.
type situation struct {
	now          time.Time
	self         string
	alone        bool
	reach        Reach
	duration     time.Duration
	lease        observation
	continues    bool       // no other process has held the lease since the last term of this process
	watch        watchState // of the lease
	assigned     assignment // of the driver; zero if no member can call it
	assignedFrom time.Time  // when the assignment counts
	settled      bool       // the assignment is known
}

func decide(s situation) decision {
	if !s.lease.known {
		return decision{reason: "the leases of the namespace are not known yet"}
	}
	// A lease in the name of this process is left from a term that was lost, or from a
	// request whose answer got lost. No other process has held it since.
	if s.lease.holder() == s.self && s.reach != Unreached {
		return decision{take: true}
	}
	expires := s.lease.expires(s.duration)
	if s.now.Before(expires) {
		return decision{reason: "held by " + s.lease.holder(), again: expires}
	}
	// Another process may be about to take the lease again, and may reach the driver: a
	// csi-attacher that restarts, say, while the endpoint that this process has is wrong.
	if s.reach == Unreached || s.reach != Callable && !s.continues {
		return decision{reason: s.awaited()}
	}
	if s.alone && s.reach.counts() {
		return decision{take: true}
	}
	// An unreachable driver is not waited for: no member may ever become its owner.
	if !s.alone && (!s.settled && s.reach.counts() || s.now.Before(s.assignedFrom)) {
		return decision{reason: "waiting for the other replicas to announce themselves", again: s.assignedFrom}
	}
	if s.assigned.owner == s.self && s.reach.counts() {
		return decision{take: true}
	}
	// The owner has a lease duration to take the lease. Time without a view of the leases does
	// not count: the owner may have been unable to act too.
	open := expires
	if s.watch.since.After(open) {
		open = s.watch.since
	}
	open = open.Add(s.duration)
	if !s.now.Before(open) && !s.watch.unreachable() {
		return decision{take: true, passedOver: s.assigned.owner}
	}
	return decision{reason: s.awaited(), again: open}
}

// awaited says which replica should take the lease.
func (s situation) awaited() string {
	switch s.assigned.owner {
	case "":
		return "no replica can call the driver"
	case s.self:
		return "the driver cannot be called"
	}
	return fmt.Sprintf("replica %s should take the lease, or another one after %s", s.assigned.owner, s.duration)
}

// handsOver reports whether the holder of a lease must hand it over to the owner of the
// driver, and if not, when to ask again (zero: after a change). An owner that was passed
// over gets nothing: it did not take the lease, and would not the next time.
func handsOver(now time.Time, self, passedOver string, assigned assignment, stable time.Duration) (yes bool, again time.Time) {
	if assigned.owner == "" || assigned.owner == self || assigned.owner == passedOver {
		return false, time.Time{}
	}
	at := assigned.since.Add(stable)
	return !now.Before(at), at
}

// remaining returns how long a lease that was renewed age ago is held without another renewal: until
// the first renewal that failed is the renew deadline ago, as with client-go's elector, or until the
// fence closes if that comes first. The first renewal comes within the retry period.
func (o Options) remaining(age time.Duration) time.Duration {
	return min(o.RetryPeriod+o.RenewDeadline, o.Duration-fenceMargin(o.Duration)) - age
}

// lossReason returns why a lease is lost that is held for remaining without another renewal, "" if
// it is not.
func (o Options) lossReason(remaining time.Duration, lease observation) string {
	if remaining <= 0 {
		return "not renewed in time"
	}
	if lease.holder() != o.Identity {
		return "taken by another process"
	}
	return ""
}
