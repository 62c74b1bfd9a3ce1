package lease

import (
	"fmt"
	"time"
)

// situation is what decides whether to try to take a lease.
type situation struct {
	now      time.Time
	self     string
	alone    bool
	reserve  bool // the driver cannot be called from here
	duration time.Duration
	lease    sighting
	view     view // of the namespace of the lease
	driver   belonging
	from     time.Time // when the belonging counts
	settled  bool      // the belonging is known
	later    bool      // another replica goes first if none can call the driver
}

// verdict is what to do in a situation.
type verdict struct {
	try    bool
	past   string    // when it tries: the owner that was passed over, if any
	reason string    // when it waits: why, for people
	again  time.Time // when it waits: when to look again if nothing changes; zero: when something does
}

func decide(s situation) verdict {
	if !s.lease.known {
		return verdict{reason: "the leases of the namespace are not known yet"}
	}
	// A lease in the name of this process is of a term that it lost, or of a request
	// whose answer got lost: nobody else has held it since.
	if s.lease.record.holder == s.self {
		return verdict{try: true}
	}
	due := s.lease.dueAt(s.duration)
	if s.now.Before(due) {
		return verdict{reason: heldBy(s.lease.record), again: due}
	}
	if s.alone && !s.reserve {
		return verdict{try: true}
	}
	// A driver that no replica is able to serve has no owner to get to know.
	if !s.alone && (!s.settled && !s.reserve || s.now.Before(s.from)) {
		return verdict{reason: "getting to know the other replicas", again: s.from}
	}
	if s.driver.owner == s.self && !s.reserve {
		return verdict{try: true}
	}
	// Its owner should have taken it by now. Time in which nobody could see it does not count: the
	// owner could not act either.
	open := due
	if s.view.since.After(open) {
		open = s.view.since
	}
	open = open.Add(s.duration)
	if s.driver.owner == "" && s.later {
		// When the driver comes back for all, it is where it belongs, and does not move
		// while the first calls are in flight.
		open = open.Add(s.duration)
	}
	if !s.now.Before(open) && !s.view.away() {
		return verdict{try: true, past: s.driver.owner}
	}
	if s.driver.owner == "" {
		return verdict{reason: "no replica can call the driver", again: open}
	}
	return verdict{reason: "belongs to replica " + s.driver.owner, again: open}
}

func heldBy(r record) string {
	if r.acquired.IsZero() {
		return "held by " + r.holder
	}
	return fmt.Sprintf("held by %s since %s", r.holder, r.acquired.UTC().Format(time.RFC3339))
}

// givesAway reports whether a driver that is served here is to be handed over, and
// when to look again. past is the owner that was passed over when the lease was taken:
// it had its chance and would have again, for ever.
func givesAway(now time.Time, self, past string, driver belonging, stable time.Duration) (yes bool, again time.Time) {
	if driver.owner == "" || driver.owner == self || driver.owner == past {
		return false, time.Time{}
	}
	at := driver.since.Add(stable)
	return !now.Before(at), at
}
