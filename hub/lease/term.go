package lease

import (
	"errors"
	"sync"
	"time"
)

// ErrFenced is returned by Term.Begin when a call or write may not begin now.
var ErrFenced = errors.New("the lease was not renewed in time to begin this safely")

// Term is one span of holding a lease, from acquiring it to losing or releasing
// it. All methods may be called from any goroutine.
type Term struct {
	duration, retry time.Duration // 0: never fenced
	version         string
	continues       bool
	lost            chan struct{}

	mu      sync.Mutex
	renewed instant // when the request of the last successful renewal was about to be sent
	over    bool    // lost or released
}

// Always is the term of a process that runs without leader election: it is never
// fenced and never lost.
func Always() *Term {
	return &Term{continues: true, lost: make(chan struct{})}
}

// Begin is the fence: it returns nil if a call or a write that takes at most
// longest may begin now, else ErrFenced. It does not block. The lease must have
// been renewed within its duration less a margin, and what begins must end
// before another process may take the lease: then even a process that is stopped in the
// middle of a call does no harm, because the deadline that the call carried has
// passed by then. So make the deadline first, ask Begin after that, and send the
// deadline along.
//
// What takes longer than a lease lasts cannot be protected in that way: it may
// begin while the lease is held, and is to be cancelled when Lost is closed.
//
// A caller that is refused tries again a little later: the next renewal
// opens the fence, unless the lease is lost.
func (t *Term) Begin(longest time.Duration) error { return t.ask(longest, mayBegin) }

// Confirm is for what Begin has allowed, right before it leaves this process: it returns
// ErrFenced if that has taken too long, because the process was stopped in between
// say. longest is what it was for Begin.
func (t *Term) Confirm(longest time.Duration) error { return t.ask(longest, mayGoOut) }

func (t *Term) ask(longest time.Duration, may func(age, longest, duration, retry time.Duration) bool) error {
	if t.duration == 0 {
		return nil
	}
	t.mu.Lock()
	renewed, over := t.renewed, t.over
	t.mu.Unlock()
	if over || !may(renewed.age(), longest, t.duration, t.retry) {
		return ErrFenced
	}
	return nil
}

// Lost is closed when the lease is lost: everything in flight must be cancelled
// at once. It stays open when the lease is released.
func (t *Term) Lost() <-chan struct{} { return t.lost }

// Continues reports whether no other process has held the lease since the last
// term that this Leases had for it. It is false for the first term.
func (t *Term) Continues() bool { return t.continues }

// ResourceVersion is that of the Lease when it was acquired.
func (t *Term) ResourceVersion() string { return t.version }

func (t *Term) renew(at instant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.renewed = at
}

// unrenewed is how long ago the lease was renewed.
func (t *Term) unrenewed() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.renewed.age()
}

// unrenewedMonotonic is unrenewed by the monotonic clock alone: for what nobody
// must be blamed for because a wall clock was set.
func (t *Term) unrenewedMonotonic() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Since(t.renewed.monotonic)
}

func (t *Term) isLost() bool {
	select {
	case <-t.lost:
		return true
	default:
		return false
	}
}

// lose closes the fence for good, then Lost.
func (t *Term) lose() {
	if t.end() {
		close(t.lost)
	}
}

// end closes the fence for good. It reports whether it was open before.
func (t *Term) end() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := !t.over
	t.over = true
	return was
}
