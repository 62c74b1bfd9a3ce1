package lease

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Claim says for which lease to compete, and what to do while it is held.
type Claim struct {
	Driver string // CSI driver name: what replicas share
	Lease  Name
	// Able reports whether the driver can be called from here. It is asked again when
	// changed is closed, and after again, if that is not 0. It must not block; nil means
	// that the driver can always be called.
	//
	// While it cannot be called, the lease is taken only when nobody held it for its whole
	// duration, and goes to the first replica that is able. While no replica is able, the
	// lease is held on, and a change of Able does not end the term.
	Able func() (able bool, changed <-chan struct{}, again time.Duration)
	// Serve is called each time the lease has been acquired. stop ends when work is
	// to wind down: the driver goes to another replica, the context of Hold has
	// ended, or the lease is lost. It returns only when all work has ended, nil if it
	// did because of stop: the lease is released only then.
	Serve func(stop context.Context, t *Term) error
	// Waiting is told, for people, why the lease is not held, whenever that
	// changes. It must not block, and may be nil.
	Waiting func(reason string)
}

// hold is one call of Hold.
type hold struct {
	*Leases
	claim Claim
	woken chan struct{} // something about the lease or the replicas has changed; room for one

	closing bool      // guarded by Leases.mu
	able    bool      // the last answer of Claim.Able; guarded by Leases.mu
	opened  time.Time // when the claim was made or became able again; guarded by Leases.mu

	// The rest belongs to the goroutine of Hold.
	told   string    // last reason
	polled time.Time // when the lease was last asked for, because it could not be watched
	tried  sighting  // what the last attempt that came to nothing was based on
	rest   time.Time // until when not to try that again
	err    error     // why it came to nothing
	past   string    // the owner that was passed over when the lease was taken
}

// Hold competes for the lease until ctx ends, and serves while it is held. It blocks
// until the work has ended and the lease is released. It returns the error of
// Serve if there is one, and nil when ctx has ended, or when Serve has ended without an error
// though it was not asked to stop.
//
// A panic of Serve goes through to the caller; the lease is then no longer
// renewed, and not released either: it expires.
func (l *Leases) Hold(ctx context.Context, c Claim) error {
	h := &hold{Leases: l, claim: c, opened: time.Now(), woken: make(chan struct{}, 1)}
	h.able, _, _ = c.isAble()
	defer l.observer.subscribe(c.Lease, h.woken)()
	l.open(h)
	defer l.close(h)
	// From when it is to end, this replica is no longer able to serve the driver, though it may take
	// a while: the others can agree meanwhile who is next.
	closed := make(chan struct{})
	unused := context.AfterFunc(ctx, func() { defer close(closed); l.beginClose(h) })
	defer func() {
		if !unused() {
			<-closed
		}
	}()
	done, ok := h.turn(ctx)
	if !ok {
		return nil
	}
	defer done()
	for h.wait(ctx) {
		served, err := h.bid(ctx)
		if err != nil || served {
			return err
		}
	}
	return nil
}

func (l *Leases) open(h *hold) {
	l.mu.Lock()
	l.holds[h] = true
	l.mu.Unlock()
	l.claimed()
	l.see(h.claim.Lease.Namespace)
}

func (l *Leases) beginClose(h *hold) {
	l.mu.Lock()
	h.closing = true
	l.mu.Unlock()
	l.claimed()
}

func (l *Leases) close(h *hold) {
	l.mu.Lock()
	delete(l.holds, h)
	l.mu.Unlock()
	l.claimed()
}

// claimed tells the others, and this process itself, that the claims have changed.
func (l *Leases) claimed() {
	wake(l.announce)
	wake(l.changed)
}

// turn waits until no other call of Hold in this process competes for the same lease: they have the
// same identity, by which nothing could keep them apart. ok is false when ctx has ended.
func (h *hold) turn(ctx context.Context) (done func(), ok bool) {
	h.mu.Lock()
	turn := h.turns[h.claim.Lease]
	if turn == nil {
		turn = make(chan struct{}, 1)
		h.turns[h.claim.Lease] = turn
	}
	h.mu.Unlock()
	done = func() { <-turn }
	select {
	case turn <- struct{}{}:
		return done, true
	default:
		h.tell("work of this process for the same lease has not ended yet")
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		changed, again := h.ask(time.Hour)
		timer.Reset(again)
		select {
		case turn <- struct{}{}:
			return done, true
		case <-ctx.Done():
			return nil, false
		case <-changed:
		case <-timer.C:
		}
	}
}

func (h *hold) tell(reason string) {
	if reason == h.told {
		return
	}
	h.told = reason
	if h.claim.Waiting != nil {
		h.claim.Waiting(reason)
	}
}

// wait blocks until it is worth to try to take the lease; false when ctx has ended.
func (h *hold) wait(ctx context.Context) bool {
	for ctx.Err() == nil {
		h.poll(ctx)
		changed, asked := h.ask(h.opts.RetryPeriod) // in which a poll may be due
		now := time.Now()
		v := h.consider(now)
		if v.try {
			return true
		}
		h.tell(v.reason)
		again := now.Add(asked)
		if v.again.After(now) && v.again.Before(again) {
			again = v.again
		}
		timer := time.NewTimer(again.Sub(now))
		select {
		case <-ctx.Done():
		case <-h.woken:
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
	return false
}

// poll asks for the lease itself when it cannot be watched.
func (h *hold) poll(ctx context.Context) {
	n := h.claim.Lease
	v := h.observer.view(n.Namespace)
	since := h.polled
	if since.IsZero() && v.err == nil {
		_, since = h.ability() // give the watch time to begin
	}
	if v.listed && v.up || time.Since(since) < h.opts.RetryPeriod {
		return
	}
	h.polled = time.Now()
	ctx, cancel := context.WithTimeout(ctx, h.opts.requestTimeout())
	defer cancel()
	l, err := h.opts.Kube.CoordinationV1().Leases(n.Namespace).Get(ctx, n.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		h.observer.saw(l)
		h.err = nil
	case apierrors.IsNotFound(err):
		h.observer.gone(n, "")
		h.err = nil
	default:
		h.err = err
	}
}

// consider decides about the situation of the moment. An attempt that came to nothing is
// repeated when the lease has changed, or after a rest.
func (h *hold) consider(now time.Time) verdict {
	able, opened := h.ability()
	s := situation{
		now:      now,
		self:     h.opts.Identity,
		alone:    h.opts.Alone,
		reserve:  !able,
		duration: h.opts.Duration,
		lease:    h.observer.look(h.claim.Lease),
		view:     h.observer.view(h.claim.Lease.Namespace),
	}
	s.driver, s.from, s.settled = h.roster.whose(h.claim.Driver, opened)
	s.later = !h.roster.first(h.claim.Driver)
	v := decide(s)
	again := s.lease.present == h.tried.present && s.lease.record.version == h.tried.record.version
	if v.try && again && now.Before(h.rest) {
		v = verdict{reason: h.told, again: h.rest}
	}
	if !v.try {
		if h.err != nil && (again || !s.view.up) {
			v.reason = troubled(h.err)
		}
		return v
	}
	h.tried = s.lease
	if s.lease.record.holder != s.self {
		h.past = v.past
	}
	return v
}

// troubled says for people what is wrong with the API.
func troubled(err error) string {
	if answered(err) {
		return fmt.Sprintf("the lease cannot be taken: %v", err)
	}
	return fmt.Sprintf("the API server cannot be reached: %v", err)
}
