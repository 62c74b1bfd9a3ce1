package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
)

// candidate is one call of Hold.
type candidate struct {
	*Leases
	held      context.Context // of Hold
	candidacy Candidacy
	lock      *lock
	woken     chan struct{} // signalled when the lease or the members have changed; room for one

	// Guarded by Leases.mu.
	reach  Reach     // the last answer of Candidacy.Reach
	opened time.Time // when the candidacy was made, or the driver last began to count as callable

	// Used by the goroutine of Hold only.
	reason     string      // last told to Candidacy.Waiting
	polled     time.Time   // when the lease was last read because it could not be watched
	tried      observation // that the last failed attempt was based on
	retryAt    time.Time   // when to try the same again
	err        error       // of the last failed attempt or poll
	passedOver string      // the owner that did not take the lease before this process did
}

// Candidacy says for which lease to compete, and what to do while it is held.
type Candidacy struct {
	Driver string // CSI driver name: what replicas share
	Lease  Name
	// Reach returns whether the driver can be called from here. It is asked again when changed
	// is closed, and after again, if that is not 0. It must not block; nil means that the
	// driver can always be called.
	//
	// While the driver cannot be called, the lease is handed over to the first replica that
	// can call it. Apart from that, a change of Reach does not end the term: Serve returns to
	// give up the lease.
	Reach func() (r Reach, changed <-chan struct{}, again time.Duration)
	// Serve is called each time the lease has been acquired. stop ends when work must wind
	// down: the driver is handed over, the context of Hold has ended, or the lease is lost.
	// Serve returns when all work has ended, nil if it ended because of stop: the lease is
	// released only then.
	Serve func(stop context.Context, t *Term) error
	// Waiting is called with the reason, for people, why the lease is not held, whenever
	// that changes. It must not block, and may be nil.
	Waiting func(reason string)
}

// Reach says whether a driver can be called from here. The values are in ascending order.
type Reach int

const (
	// Unreached: the driver could never be called, or not for so long that its lease is given
	// up. The lease is not taken.
	Unreached Reach = iota
	// Away: the driver could be called lately. The lease is taken only if no other process has
	// held it since the last term of this process, and if nobody took it for its duration.
	Away
	// JustAway: as Away, but the driver is mostly back in a moment, so the other replicas are
	// told that it can be called.
	JustAway
	// Callable: the driver can be called.
	Callable
)

// counts reports whether the driver counts as callable for the other replicas.
func (r Reach) counts() bool { return r >= JustAway }

// Hold competes for the lease until ctx ends, and serves while it is held. It blocks until
// the work has ended and the lease is released. The logger of ctx must name the driver, as
// log lines about the lease do not. It returns the error of Serve if there is
// one, and nil when ctx has ended, or when Serve has ended without an error though it was
// not asked to stop.
//
// A panic of Serve goes through to the caller. The lease is then neither renewed nor
// released: it expires. A panic in a goroutine of Hold ends the term as if the lease was lost, and
// is an error.
func (l *Leases) Hold(ctx context.Context, candidacy Candidacy) error {
	c := &candidate{Leases: l, held: ctx, candidacy: candidacy, lock: l.lock(candidacy.Lease), opened: time.Now(), woken: make(chan struct{}, 1)}
	c.reach, _, _ = c.askReach()
	l.wantWatch(candidacy.Lease, func(w *watch) { w.candidacies++ })
	defer l.wantWatch(candidacy.Lease, func(w *watch) { w.candidacies-- }) // after unsubscribe
	defer l.observations.subscribe(candidacy.Lease, c.woken)()
	l.changeCandidacies(func() { l.candidates[c] = true })
	defer l.changeCandidacies(func() { delete(l.candidates, c) })
	// The others can agree on the next owner while the work here still drains.
	defer context.AfterFunc(ctx, l.candidaciesChanged)()
	if !c.takeSlot(ctx) {
		return nil
	}
	defer func() { <-c.lock.slot }()
	for c.wait(ctx) {
		if ended, err := c.attempt(ctx); ended || err != nil {
			return err
		}
	}
	return nil
}

// changeCandidacies tells the other replicas, and this process itself, that candidacies have changed.
func (l *Leases) changeCandidacies(change func()) {
	l.mu.Lock()
	change()
	l.mu.Unlock()
	l.candidaciesChanged()
}

func (l *Leases) candidaciesChanged() {
	notify(l.announce)
	notify(l.membersChanged)
}

// takeSlot blocks until no other candidate of this process uses the lock. It returns false
// when ctx has ended.
func (c *candidate) takeSlot(ctx context.Context) bool {
	select {
	case c.lock.slot <- struct{}{}:
		return true
	default:
		c.tell("work of this process for the same lease has not ended yet")
	}
	for {
		changed, again := c.updateReach(time.Hour)
		select {
		case c.lock.slot <- struct{}{}:
			return true
		case <-ctx.Done():
			return false
		case <-changed:
		case <-time.After(again):
		}
	}
}

func (c *candidate) tell(reason string) {
	if reason == c.reason {
		return
	}
	c.reason = reason
	if c.candidacy.Waiting != nil {
		c.candidacy.Waiting(reason)
	}
}

func (c *candidate) askReach() (r Reach, changed <-chan struct{}, again time.Duration) {
	if c.candidacy.Reach == nil {
		return Callable, nil, 0
	}
	return c.candidacy.Reach()
}

// updateReach notes whether the driver can be called from here, and announces a change. It
// must be called again when changed is closed, and after the time that it returns, which is
// limit at most.
func (c *candidate) updateReach(limit time.Duration) (changed <-chan struct{}, again time.Duration) {
	reach, changed, again := c.askReach()
	if again <= 0 || again > limit {
		again = limit
	}
	if was, _ := c.reached(); was != reach {
		c.changeCandidacies(func() {
			c.reach = reach
			if reach.counts() && !was.counts() {
				c.opened = time.Now()
			}
		})
	}
	return changed, again
}

// reached returns whether the driver can be called from here, and since when the candidacy
// counts: since it was made, or since the driver counts as callable again.
func (c *candidate) reached() (r Reach, opened time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reach, c.opened
}

// wait blocks until the lease is to be taken. It returns false when ctx has ended.
func (c *candidate) wait(ctx context.Context) bool {
	for ctx.Err() == nil {
		c.poll(ctx)
		changed, again := c.updateReach(c.options.RetryPeriod) // after which a poll may be due
		now := time.Now()
		d := c.decide(now)
		if d.take {
			return true
		}
		c.tell(d.reason)
		if d.again.After(now) {
			again = min(again, d.again.Sub(now))
		}
		select {
		case <-ctx.Done():
		case <-c.woken:
		case <-changed:
		case <-time.After(again):
		}
	}
	return false
}

// poll reads the lease once in each retry period in which it cannot be watched.
func (c *candidate) poll(ctx context.Context) {
	state := c.observations.watchOf(c.candidacy.Lease)
	since := c.polled
	if since.IsZero() && state.err == nil {
		_, since = c.reached() // the watch needs time to begin
	}
	if state.listed && state.up || time.Since(since) < c.options.RetryPeriod {
		return
	}
	c.polled = time.Now()
	_, c.err = c.lock.read(ctx)
}

// decide decides about the present situation. A failed attempt is repeated when the lease
// has changed, or after a pause.
func (c *candidate) decide(now time.Time) decision {
	reach, opened := c.reached()
	s := situation{
		now:      now,
		self:     c.options.Identity,
		alone:    c.options.Alone,
		reach:    reach,
		duration: c.options.Duration,
		lease:    c.observations.get(c.candidacy.Lease),
		watch:    c.observations.watchOf(c.candidacy.Lease),
	}
	s.continues = c.lock.continues(s.lease)
	s.assigned, s.assignedFrom, s.settled = c.members.assignment(c.candidacy.Driver, opened)
	d := decide(s)
	unchanged := s.lease.present == c.tried.present && s.lease.lease.ResourceVersion == c.tried.lease.ResourceVersion
	if d.take && unchanged && now.Before(c.retryAt) {
		d = decision{reason: c.reason, again: c.retryAt}
	}
	if !d.take {
		if c.err != nil && (unchanged || !s.watch.up) {
			d.reason = problem(c.err)
		}
		return d
	}
	c.tried = s.lease
	if s.lease.holder() != s.self {
		c.passedOver = d.passedOver
	}
	return d
}

// problem describes an error of the API for people.
func problem(err error) string {
	if answered(err) {
		return fmt.Sprintf("the lease cannot be taken: %v", err)
	}
	return fmt.Sprintf("the API server cannot be reached: %v", err)
}

// attempt tries to take the lease, and serves if that succeeds. ended reports that Serve has
// returned without being asked to stop.
func (c *candidate) attempt(ctx context.Context) (ended bool, err error) {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("lease", c.candidacy.Lease))
	term, err := c.lock.acquire(ctx, c.tried)
	if ctx.Err() != nil {
		if err == nil || !answered(err) { // a request without an answer may have succeeded
			c.release(ctx)
		}
		return false, nil
	}
	if err != nil {
		c.retryAt = time.Now().Add(c.options.RetryPeriod/2 + rand.N(c.options.RetryPeriod/2))
		if errors.Is(err, errStale) {
			_, err = c.lock.read(ctx)
		}
		if !c.tried.present && apierrors.IsForbidden(err) {
			err = fmt.Errorf("lease %s does not exist, and the hub may not create it; create the lease, or remove lease.namespace from the driver's entry: %w",
				c.candidacy.Lease, err)
		}
		c.err = err
		return false, nil
	}
	c.err, c.reason = nil, ""
	klog.FromContext(ctx).V(2).Info("Lease acquired")
	ended, err = c.lead(ctx, term)
	if !term.isLost() && c.release(ctx) {
		klog.FromContext(ctx).V(2).Info("Lease released")
	}
	return ended, err
}

func (c *candidate) release(ctx context.Context) (released bool) {
	err := c.lock.release(ctx)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to release the lease, it expires", "after", c.options.Duration)
	}
	return err == nil
}
