package lease

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"
)

// Member is a live replica.
type Member struct {
	Identity string
	Drivers  []string // that it can call, sorted
	Self     bool
}

// members knows the live replicas and the drivers assigned to them. Its methods do not block
// and may be called from any goroutine.
type members struct {
	self   string
	settle time.Duration // how long replicas that start together wait for one another
	stable time.Duration // how long a driver is assigned to another replica before it is handed over

	mu       sync.Mutex
	known    time.Time // when the live members were first known; zero: they are not
	live     []Member
	assigned map[string]assignment // by driver
}

func newMembers(o Options) *members {
	return &members{self: o.Identity, settle: min(time.Second, o.RetryPeriod/2), stable: min(time.Second, o.RetryPeriod)}
}

// set notes the live members and reports whether that changes an assignment.
func (m *members) set(live []Member, now time.Time) (changed bool) {
	next := map[string]assignment{}
	owners := assign(live)
	m.mu.Lock()
	defer m.mu.Unlock()
	for driver, owner := range owners {
		a := assignment{owner: owner, since: now}
		a.certain = !slices.ContainsFunc(live, func(other Member) bool { return !slices.Contains(other.Drivers, driver) })
		if old, ok := m.assigned[driver]; ok && old.owner == owner {
			a.since = old.since
		}
		next[driver] = a
	}
	changed = m.known.IsZero() || !maps.Equal(next, m.assigned)
	if m.known.IsZero() {
		m.known = now
	}
	m.live, m.assigned = live, next
	return changed
}

func (m *members) areKnown() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.known.IsZero()
}

// list returns the live members. Their Drivers must not be changed.
func (m *members) list() []Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.live)
}

// assignment returns the assignment of the driver, and from when it counts for a claim that
// was opened at the given time. ok is false if no member can call the driver, or the members
// are not known.
func (m *members) assignment(driver string, opened time.Time) (a assignment, from time.Time, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known.IsZero() {
		return assignment{}, time.Time{}, false
	}
	from = m.known.Add(m.settle)
	a, ok = m.assigned[driver]
	if settled := opened.Add(m.settle); !a.certain && settled.After(from) {
		from = settled
	}
	return a, from, ok
}

// liveMembers returns this replica and those of the announced replicas that are live, sorted.
// next is when the first of them dies if it does not renew; zero if none can.
func liveMembers(self Member, announced map[Name]observation, defaultDuration time.Duration, now time.Time) (live []Member, next time.Time) {
	live = []Member{self}
	for _, seen := range announced {
		expires := seen.livesUntil(defaultDuration)
		if holder := seen.holder(); holder == "" || holder == self.Identity || !now.Before(expires) {
			continue
		}
		live = append(live, Member{Identity: seen.holder(), Drivers: announcedDrivers(&seen.lease)})
		if next.IsZero() || expires.Before(next) {
			next = expires
		}
	}
	slices.SortFunc(live, func(a, b Member) int { return cmp.Compare(a.Identity, b.Identity) })
	return slices.CompactFunc(live, func(a, b Member) bool { return a.Identity == b.Identity }), next
}
