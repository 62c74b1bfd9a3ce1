package lease

import "time"

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
