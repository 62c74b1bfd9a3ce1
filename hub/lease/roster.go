package lease

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// roster knows the living replicas and what belongs to whom. Its methods do not block
// and may be called from any goroutine.
type roster struct {
	self   string
	settle time.Duration // how long replicas that start together wait for one another
	stable time.Duration // how long a driver must belong to another before it is handed over

	mu      sync.Mutex
	known   time.Time // when the members were known first; zero: they are not
	members []Member
	owners  map[string]belonging // by driver
}

// belonging says to whom a driver belongs, and since when. An empty owner is
// whoever comes.
type belonging struct {
	owner   string
	since   time.Time
	certain bool // every member is able to serve it: no other is to be waited for
}

func newRoster(o Options) *roster {
	return &roster{self: o.Identity, settle: min(time.Second, o.RetryPeriod/2), stable: min(time.Second, o.RetryPeriod)}
}

// set takes in the living members and reports whether that moves a driver.
func (r *roster) set(members []Member, now time.Time) (moved bool) {
	owners := share(members)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known.IsZero() {
		r.known = now
		moved = true
	}
	next := map[string]belonging{}
	for driver, owner := range owners {
		b := belonging{owner: owner, since: now, certain: true}
		for _, m := range members {
			b.certain = b.certain && slices.Contains(m.Drivers, driver)
		}
		if old, ok := r.owners[driver]; ok && old.owner == owner {
			b.since = old.since
		}
		next[driver] = b
	}
	moved = moved || !maps.Equal(next, r.owners)
	r.members, r.owners = members, next
	return moved
}

// list returns the living members.
func (r *roster) list() []Member {
	r.mu.Lock()
	defer r.mu.Unlock()
	members := slices.Clone(r.members)
	for i := range members {
		members[i].Drivers = slices.Clone(members[i].Drivers)
	}
	return members
}

// whose says to whom the driver belongs, and from when on that counts for a
// claim opened at the given time; ok is false while the members are not known.
func (r *roster) whose(driver string, opened time.Time) (b belonging, from time.Time, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known.IsZero() {
		return belonging{}, time.Time{}, false
	}
	from = r.known.Add(r.settle)
	b, ok = r.owners[driver]
	if claimed := opened.Add(r.settle); (!ok || !b.certain) && claimed.After(from) {
		from = claimed
	}
	return b, from, ok
}

// first reports whether this replica comes first among the living for a driver that none
// of them can call. It would belong to this one if all of them could call it.
func (r *roster) first(driver string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !slices.ContainsFunc(r.members, func(m Member) bool { return before(m.Identity, r.self, driver) })
}

// census counts the living among the announced replicas. next is when one of them dies if it
// does not renew; zero: none will.
func census(self Member, announced map[Name]sighting, whenUnsaid time.Duration, now time.Time) (members []Member, next time.Time) {
	members = []Member{self}
	for _, s := range announced {
		r := s.record
		ends := s.dueAt(whenUnsaid)
		if r.holder == "" || r.holder == self.Identity || !now.Before(ends) {
			continue
		}
		members = append(members, Member{Identity: r.holder, Drivers: r.drivers})
		if next.IsZero() || ends.Before(next) {
			next = ends
		}
	}
	slices.SortFunc(members, func(a, b Member) int {
		if a.Identity < b.Identity {
			return -1
		}
		return 1
	})
	return slices.CompactFunc(members, func(a, b Member) bool { return a.Identity == b.Identity }), next
}
