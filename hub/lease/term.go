package lease

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrFenced is returned by Term.Begin and Term.Confirm when a request may not be sent now.
var ErrFenced = errors.New("the lease was not renewed in time to begin this safely")

// Term is the time from acquiring a lease to losing or releasing it. All methods may be
// called from any goroutine, and none blocks.
type Term struct {
	duration, retry time.Duration // 0: never fenced
	version         string
	continues       bool
	lost            context.Context // see Lost
	markLost        context.CancelFunc

	mu      sync.Mutex
	renewed instant // right before the last successful renewal was sent
	over    bool    // lost or released
}

// Always returns the term of a process without leader election: it is never fenced and never
// lost.
func Always() *Term {
	return &Term{continues: true, lost: context.Background()}
}

// NewTerm returns the term of a lease whose acquisition was sent just now. duration and retry are those of the lease,
// version its resourceVersion. continues: see Continues.
func NewTerm(duration, retry time.Duration, version string, continues bool) *Term {
	lost, markLost := context.WithCancel(context.Background())
	return &Term{duration: duration, retry: retry, version: version, continues: continues, lost: lost, markLost: markLost, renewed: now()}
}

// Begin is the fence: it returns nil if a call or write that takes at most longest may begin
// now, else ErrFenced. The lease must have been renewed within its duration less a margin,
// and the request must end before another process may take the lease. Then a process that
// is stopped in the middle of a call does no harm: the deadline that the call carries
// passes before. So set the deadline first, ask Begin next, and send the deadline along.
//
// A request that takes longer than a lease lasts cannot be protected like this. It may begin
// while the lease is held, and must be cancelled when Lost ends.
//
// After ErrFenced try again a little later: the next renewal opens the fence, unless the
// lease is lost.
func (t *Term) Begin(longest time.Duration) error { return t.beginAt(now(), longest) }

func (t *Term) beginAt(at instant, longest time.Duration) error {
	return t.check(at, longest, fenceMargin(t.duration))
}

// Confirm must be called right before a request that Begin has allowed leaves this process.
// It returns ErrFenced if that took too long, for example because the process was stopped in
// between. longest is what it was for Begin.
func (t *Term) Confirm(longest time.Duration) error { return t.confirmAt(now(), longest) }

func (t *Term) confirmAt(at instant, longest time.Duration) error {
	return t.check(at, longest, fenceMargin(t.duration)/2) // half of the margin may have passed since Begin
}

// check returns ErrFenced unless a request that begins at an instant ends before the margin of the lease.
func (t *Term) check(at instant, longest, margin time.Duration) error {
	if t.duration == 0 {
		return nil
	}
	t.mu.Lock()
	renewed, over := t.renewed, t.over
	t.mu.Unlock()
	if over || !endsInTime(margin, at.since(renewed), longest, t.duration, t.retry) {
		return ErrFenced
	}
	return nil
}

// Lost returns a context that ends when the lease is lost: everything in flight must be cancelled at once.
// It does not end when the lease is released.
func (t *Term) Lost() context.Context { return t.lost }

// Continues reports whether no other process has held the lease since the last term that
// this Leases had for it. It is false for the first term.
func (t *Term) Continues() bool { return t.continues }

// ResourceVersion returns the resourceVersion of the Lease when it was acquired.
func (t *Term) ResourceVersion() string { return t.version }

func (t *Term) renew(at instant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.renewed = at
}

// lastRenewal returns when the last successful renewal was sent.
func (t *Term) lastRenewal() instant {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.renewed
}

func (t *Term) isLost() bool { return t.lost.Err() != nil }

// lose closes the fence for good, then ends Lost.
func (t *Term) lose() {
	if t.end() {
		t.markLost()
	}
}

// end closes the fence for good, and reports whether it was open.
func (t *Term) end() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	open := !t.over
	t.over = true
	return open
}

// instant is a moment on two clocks. A frozen machine may stop its monotonic clock, and an
// administrator may set its wall clock: the clock that shows the longer time counts.
type instant struct {
	monotonic time.Time
	wall      time.Time // without a monotonic reading
}

func now() instant {
	t := time.Now()
	return instant{monotonic: t, wall: t.Round(0)}
}

// age returns how long ago the instant was.
func (i instant) age() time.Duration { return now().since(i) }

// since returns how long after an earlier instant this one is.
func (i instant) since(earlier instant) time.Duration {
	return max(i.monotonic.Sub(earlier.monotonic), i.wall.Sub(earlier.wall))
}

// fenceMargin is how long before its end a lease counts as not held: the clocks of two
// machines do not run equally fast, and cancelling takes time.
func fenceMargin(duration time.Duration) time.Duration {
	return max(100*time.Millisecond, duration/20)
}

// endsInTime reports whether a request that takes at most longest, and begins when the lease
// was renewed age ago, ends before the margin of the lease begins. A request that does not fit
// into a lease must only begin by then.
func endsInTime(margin, age, longest, duration, retry time.Duration) bool {
	limit := duration - margin
	if age >= limit {
		return false
	}
	return age+longest <= limit || !fits(longest, duration, retry)
}

// fits reports whether a request that takes at most longest can end within a lease: there
// must be a time between two renewals at which it may begin, also when a renewal takes as
// long as the margin.
func fits(longest, duration, retry time.Duration) bool {
	return longest+retry+2*fenceMargin(duration) <= duration
}
