package lease

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
)

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
