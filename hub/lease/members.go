package lease

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
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
	self     string
	debounce time.Duration // how long replicas that start together wait for one another
	stable   time.Duration // how long a driver is assigned to another replica before it is handed over

	mu       sync.Mutex
	known    time.Time // when the live members were first known; zero: they are not
	live     []Member
	assigned map[string]assignment // by driver
}

func newMembers(o Options) *members {
	return &members{self: o.Identity, debounce: min(time.Second, o.RetryPeriod/2), stable: min(time.Second, o.RetryPeriod)}
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

// assignment returns the assignment of the driver, and from when it counts for a candidacy that
// was opened at the given time. ok is false if no member can call the driver, or the members
// are not known.
func (m *members) assignment(driver string, opened time.Time) (a assignment, from time.Time, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known.IsZero() {
		return assignment{}, time.Time{}, false
	}
	from = m.known.Add(m.debounce)
	a, ok = m.assigned[driver]
	if debounced := opened.Add(m.debounce); !a.certain && debounced.After(from) {
		from = debounced
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

// livesUntil returns until when the replica that announces itself by the Lease counts as live if the
// Lease does not change.
func (o observation) livesUntil(defaultDuration time.Duration) time.Time {
	return o.expires(defaultDuration).Add(-o.age)
}

// ageWhenListed returns how long before the newest renewal a replica renewed its announcement,
// 0 if that is not known.
func ageWhenListed(l *coordinationv1.Lease, newest time.Time) time.Duration {
	if l.Spec.RenewTime == nil {
		return 0
	}
	return max(0, newest.Sub(l.Spec.RenewTime.Time))
}

// newestRenewal returns when a replica other than self last renewed its announcement, but not
// later than now. It tells which of the replicas that are listed for the first time died
// before.
//
// That compares clocks of machines, which may be wrong. It cannot make two processes hold one
// lease: a lease is taken from its holder by the monotonic clock alone. A live replica that is
// taken for dead renews within a retry period, and its drivers are handed over to it. A dead
// one that is taken for live is waited for as long as without the comparison. The own clock
// alone would call all others dead if it is wrong, and after an outage.
func newestRenewal(leases []*coordinationv1.Lease, self string, now time.Time) time.Time {
	var newest time.Time
	for _, l := range leases {
		if isAnnouncement(l) && ptr.Deref(l.Spec.HolderIdentity, "") != self && l.Spec.RenewTime != nil && l.Spec.RenewTime.After(newest) {
			newest = l.Spec.RenewTime.Time
		}
	}
	if newest.After(now) {
		return now
	}
	return newest
}

// keepDead notes the replicas that have died before the watch broke. It compares with the newest
// observation, which mostly is this replica's own: all are old if the API server hung before.
// The caller has locked mu.
func (o *observations) keepDead(s Name) {
	var newest time.Time
	for n, seen := range o.byName {
		if s.contains(n) && isAnnouncement(&seen.lease) && seen.since.After(newest) {
			newest = seen.since
		}
	}
	for n, seen := range o.byName {
		if s.contains(n) && isAnnouncement(&seen.lease) && !newest.Before(seen.livesUntil(o.defaultDuration)) {
			seen.age += newest.Sub(seen.since)
			o.byName[n] = seen
		}
	}
}
