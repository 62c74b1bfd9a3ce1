package lease

import (
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
)

// What the Lease of a replica carries.
const (
	replicaLabel      = "attach-hub/replica" // "true"
	driversAnnotation = "attach-hub/drivers" // names, separated by commas
)

// record is what matters of a Lease object.
type record struct {
	uid         types.UID
	version     string // resourceVersion
	holder      string // "": nobody
	duration    time.Duration
	transitions int32
	acquired    time.Time // by the holder's clock, as the next
	renewed     time.Time

	replica bool     // it announces a replica
	drivers []string // that the replica is able to serve
}

func recordOf(l *coordinationv1.Lease) record {
	r := record{
		uid:         l.UID,
		version:     l.ResourceVersion,
		holder:      deref(l.Spec.HolderIdentity),
		duration:    time.Duration(deref(l.Spec.LeaseDurationSeconds)) * time.Second,
		transitions: deref(l.Spec.LeaseTransitions),
		replica:     l.Labels[replicaLabel] == "true",
	}
	if l.Spec.AcquireTime != nil {
		r.acquired = l.Spec.AcquireTime.Time
	}
	if l.Spec.RenewTime != nil {
		r.renewed = l.Spec.RenewTime.Time
	}
	if names := l.Annotations[driversAnnotation]; r.replica && names != "" {
		r.drivers = strings.Split(names, ",")
	}
	return r
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// sighting is what was last seen of a lease. Only this process's monotonic clock
// counts: those of others may be wrong, and this one stops at worst, which makes
// a lease last longer here, never shorter.
type sighting struct {
	known   bool // false: nobody has looked yet
	present bool // the object exists; record is the last one seen, also if not
	record  record
	since   time.Time // when the record was first seen like this
}

// dueAt is when the lease may be taken, if it stands as it is until then: at
// once if nobody holds it. One that was deleted while it was held lasts as if it
// had not been, because whoever held it may not know yet.
func (s sighting) dueAt(whenUnsaid time.Duration) time.Time {
	if s.record.holder == "" {
		return s.since
	}
	duration := s.record.duration
	if duration <= 0 {
		duration = whenUnsaid
	}
	return s.since.Add(duration)
}
