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
)

// Leases competes for leases on behalf of one process.
type Leases struct {
	opts     Options
	observer *observer
	roster   *roster
	history  history

	changed  chan struct{} // replicas or claims have changed; room for one
	announce chan struct{} // claims have changed; room for one
	wanted   chan struct{} // a namespace is to be watched; room for one

	mu         sync.Mutex
	namespaces map[string]bool
	holds      map[*hold]bool
	terms      map[Name]*Term         // from acquiring to the end of all work
	turns      map[Name]chan struct{} // room for one: who may compete within this process
}

// New checks the options.
func New(o Options) (*Leases, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("leader election: %w", err)
	}
	changed := make(chan struct{}, 1)
	l := &Leases{
		opts:       o,
		observer:   newObserver(changed),
		roster:     newRoster(o),
		history:    history{last: map[Name]record{}},
		changed:    changed,
		announce:   make(chan struct{}, 1),
		wanted:     make(chan struct{}, 1),
		namespaces: map[string]bool{},
		holds:      map[*hold]bool{},
		terms:      map[Name]*Term{},
		turns:      map[Name]chan struct{}{},
	}
	if !o.Alone {
		l.namespaces[o.Namespace] = true
	}
	return l, nil
}

// Run watches leases and announces this replica. It blocks until ctx ends and then
// takes its announcement back. It must be called once, and outlive all calls of Hold.
// It returns nil.
func (l *Leases) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	if !l.opts.Alone {
		wg.Go(func() { l.count(ctx) })
		wg.Go(func() { (&announcer{leases: l}).run(ctx) })
	}
	watched := map[string]bool{}
	for {
		for _, namespace := range l.toWatch() {
			if watched[namespace] {
				continue
			}
			watched[namespace] = true
			w := &watch{kube: l.opts.Kube, namespace: namespace, observer: l.observer, timeout: l.opts.RenewDeadline, retry: l.opts.RetryPeriod}
			wg.Go(func() { w.run(ctx) })
		}
		select {
		case <-ctx.Done():
			return nil
		case <-l.wanted:
		}
	}
}

func (l *Leases) toWatch() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.namespaces))
}

// see has a namespace watched.
func (l *Leases) see(namespace string) {
	l.mu.Lock()
	seen := l.namespaces[namespace]
	l.namespaces[namespace] = true
	l.mu.Unlock()
	if !seen {
		wake(l.wanted)
	}
}

// count keeps the roster of living replicas until ctx ends.
func (l *Leases) count(ctx context.Context) {
	timer := time.NewTimer(l.opts.Duration)
	defer timer.Stop()
	started := time.Now()
	for {
		next := l.countOnce(started)
		timer.Reset(max(time.Until(next), time.Millisecond))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-l.changed:
		}
	}
}

// countOnce returns when to count again, if nothing changes before.
func (l *Leases) countOnce(started time.Time) (next time.Time) {
	now := time.Now()
	next = now.Add(l.opts.Duration)
	announced := l.observer.announced(l.opts.Namespace)
	v := l.observer.view(l.opts.Namespace)
	switch {
	case v.up && v.listed:
	case apierrors.IsForbidden(v.err) && (!v.listed || now.Sub(v.since) >= l.opts.Duration), !v.listed && now.Sub(started) >= l.opts.Duration:
		// Without a sight of the others, this replica competes for everything.
		announced = nil
	case !v.listed:
		return next
	default:
		// The API server is away, and nobody can renew: who was there counts as there.
		for n, s := range announced {
			s.since = now
			announced[n] = s
		}
	}
	members, dies := census(Member{Identity: l.opts.Identity, Drivers: l.able(), Self: true}, announced, l.opts.Duration, now)
	if !dies.IsZero() && dies.Before(next) {
		next = dies
	}
	if l.roster.set(members, now) {
		l.wakeAll()
	}
	return next
}

// able returns the drivers with an open claim that can be called from here.
func (l *Leases) able() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	drivers := map[string]bool{}
	for h := range l.holds {
		if !h.closing && h.able {
			drivers[h.claim.Driver] = true
		}
	}
	return slices.Sorted(maps.Keys(drivers))
}

func (l *Leases) wakeAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for h := range l.holds {
		wake(h.woken)
	}
}

// Holder says who holds a lease. The times are by the clock of the holder.
type Holder struct {
	Identity string
	Since    time.Time // when it acquired the lease
	Renewed  time.Time
	Mine     bool // it is this process
}

// Holder is who holds the lease, as last seen, if anybody does. It may have died: then the lease
// is not renewed any more. The first question about a namespace has it watched from
// then on, and is answered with nobody.
func (l *Leases) Holder(n Name) (Holder, bool) {
	l.see(n.Namespace)
	s := l.observer.look(n)
	if !s.present || s.record.holder == "" {
		return Holder{}, false
	}
	r := s.record
	return Holder{Identity: r.holder, Since: r.acquired, Renewed: r.renewed, Mine: r.holder == l.opts.Identity}, true
}

// Members are the living replicas, sorted by identity; none while they are not known, or when
// this process stands Alone.
func (l *Leases) Members() []Member { return l.roster.list() }

// Check is an error if a lease that is held was not renewed for its duration and
// grace: the work should have ended long ago, and has not. It is meant for
// /healthz/leader-election; a process that waits for leases is well.
func (l *Leases) Check(grace time.Duration) error {
	l.mu.Lock()
	terms := maps.Clone(l.terms)
	l.mu.Unlock()
	var errs []error
	for n, t := range terms {
		if age := t.unrenewedMonotonic(); age > l.opts.Duration+grace {
			errs = append(errs, fmt.Errorf("lease %s was not renewed for %v, and its work has not ended", n, age.Round(time.Second)))
		}
	}
	return errors.Join(errs...)
}
