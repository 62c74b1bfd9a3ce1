package lease

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Leases competes for leases on behalf of one process.
type Leases struct {
	options      Options
	observations *observations
	members      *members

	// Each has room for one signal.
	membersChanged chan struct{} // replicas or candidacies have changed
	announce       chan struct{} // candidacies have changed
	watchesChanged chan struct{} // what is to be watched has changed

	mu         sync.Mutex // guards the rest
	watches    map[Name]*watch
	candidates map[*candidate]bool
	locks      map[Name]*lock // never removed: each remembers how its last term ended
}

// New checks the options.
func New(o Options) (*Leases, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("leader election: %w", err)
	}
	membersChanged := make(chan struct{}, 1)
	l := &Leases{
		options:        o,
		observations:   newObservations(membersChanged),
		members:        newMembers(o),
		membersChanged: membersChanged,
		announce:       make(chan struct{}, 1),
		watchesChanged: make(chan struct{}, 1),
		watches:        map[Name]*watch{},
		candidates:     map[*candidate]bool{},
		locks:          map[Name]*lock{},
	}
	l.observations.self, l.observations.defaultDuration = o.Identity, o.Duration
	if !o.Alone {
		l.watches[Name{Namespace: o.Namespace}] = &watch{candidacies: 1}
	}
	return l, nil
}

// Run watches leases and announces this replica. It blocks until ctx ends, and then deletes
// the announcement. It must be called once, and outlive all calls of Hold. It returns nil.
func (l *Leases) Run(ctx context.Context) error {
	var loops sync.WaitGroup
	defer loops.Wait()
	if !l.options.Alone {
		loops.Go(func() { l.followMembers(ctx) })
		loops.Go(func() { newAnnouncer(l).run(ctx) })
	}
	for {
		again := l.updateWatches(ctx, &loops)
		select {
		case <-ctx.Done():
			return nil
		case <-l.watchesChanged:
		case <-time.After(again):
		}
	}
}

// lock returns the lock of a lease.
func (l *Leases) lock(n Name) *lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.locks[n]
	if k == nil {
		k = &lock{
			name:         n,
			options:      l.options,
			client:       l.options.Kube.CoordinationV1().Leases(n.Namespace),
			observations: l.observations,
			slot:         make(chan struct{}, 1),
		}
		l.locks[n] = k
	}
	return k
}

// followMembers keeps members up to date until ctx ends.
func (l *Leases) followMembers(ctx context.Context) {
	started := time.Now()
	for {
		next := l.updateMembers(started)
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(time.Until(next), time.Millisecond)):
		case <-l.membersChanged:
		}
	}
}

// updateMembers returns when to call it again if nothing changes before.
func (l *Leases) updateMembers(started time.Time) (next time.Time) {
	now := time.Now()
	next = now.Add(l.options.Duration)
	announced := l.observations.announcements(l.options.Namespace)
	state := l.observations.watchOf(Name{Namespace: l.options.Namespace})
	switch {
	case state.up && state.listed:
	case apierrors.IsForbidden(state.err) && (!state.listed || now.Sub(state.since) >= l.options.Duration),
		!state.listed && now.Sub(started) >= l.options.Duration:
		// Without a view of the others, this replica competes for every driver.
		announced = nil
	case !state.listed:
		return next
	default:
		// The API server cannot be reached, and no replica can renew: the last live members stay.
		for n, seen := range announced {
			seen.since = now
			announced[n] = seen
		}
	}
	self := Member{Identity: l.options.Identity, Drivers: l.reachableDrivers(), Self: true}
	live, dies := liveMembers(self, announced, l.options.Duration, now)
	if !dies.IsZero() && dies.Before(next) {
		next = dies
	}
	first := !l.members.areKnown()
	if l.members.set(live, now) {
		l.wakeCandidates()
	}
	if first {
		notify(l.announce)
	}
	return next
}

// driversToAnnounce returns the drivers that this replica can serve. There are none before it
// knows the other replicas: it would not take what they hand over.
func (l *Leases) driversToAnnounce() []string {
	if !l.members.areKnown() {
		return nil
	}
	return l.reachableDrivers()
}

// reachableDrivers returns the drivers with an open candidacy that count as callable from here.
func (l *Leases) reachableDrivers() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	drivers := map[string]bool{}
	for c := range l.candidates {
		if c.held.Err() == nil && c.reach.counts() {
			drivers[c.candidacy.Driver] = true
		}
	}
	return slices.Sorted(maps.Keys(drivers))
}

func (l *Leases) wakeCandidates() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.candidates {
		notify(c.woken)
	}
}

// Holder is the holder of a lease. The times are by the clock of the holder.
type Holder struct {
	Identity string
	Since    time.Time // when it acquired the lease
	Renewed  time.Time
	Mine     bool // it is this process
	// Expired says that the lease was not renewed for its duration, by the clock of this process: any process may
	// take it. It is not set while that is not known.
	Expired bool
	// Renews says that this process has seen the lease being written while it watched it, and still watches it.
	Renews bool
}

// Holder returns the holder of a lease as last seen, if there is one. A holder that has died
// stays the holder, with Expired set, until another process takes the lease. The first call for a lease may return
// none, and makes Run watch the lease for askedFor.
func (l *Leases) Holder(n Name) (Holder, bool) {
	l.wantWatch(n, func(w *watch) { w.asked = time.Now() })
	seen := l.observations.get(n)
	if !seen.present || seen.holder() == "" {
		return Holder{}, false
	}
	spec, watch := seen.lease.Spec, l.observations.watchOf(n)
	return Holder{
		Identity: seen.holder(),
		Since:    ptr.Deref(spec.AcquireTime, metav1.MicroTime{}).Time,
		Renewed:  ptr.Deref(spec.RenewTime, metav1.MicroTime{}).Time,
		Mine:     seen.holder() == l.options.Identity,
		Expired:  seen.isDead(watch, l.options.Duration, time.Now()),
		Renews:   seen.changed && watch.up && !watch.since.After(seen.since),
	}, true
}

// Members returns the live replicas, sorted by identity; none while they are not known, or
// if this process is Alone.
func (l *Leases) Members() []Member { return l.members.list() }

// Check returns an error if a lease was not renewed for its duration and grace, and its work
// has not ended: it should have ended long ago. It is meant for /healthz/leader-election. A
// process that waits for leases is healthy.
func (l *Leases) Check(grace time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for n, k := range l.locks {
		if k.term == nil {
			continue
		}
		// By the monotonic clock alone: setting the wall clock must not make a process look unhealthy.
		if age := time.Since(k.term.lastRenewal().monotonic); age > l.options.Duration+grace {
			errs = append(errs, fmt.Errorf("lease %s was not renewed for %v, and its work has not ended", n, age.Round(time.Second)))
		}
	}
	return errors.Join(errs...)
}
