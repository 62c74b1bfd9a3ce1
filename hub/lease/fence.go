package lease

import "time"

// instant is a moment on two clocks. A machine that is frozen may stop its
// monotonic clock, and somebody may set its wall clock: the more pessimistic one
// of the two counts.
type instant struct {
	monotonic time.Time
	wall      time.Time // without a monotonic reading
}

func now() instant {
	t := time.Now()
	return instant{monotonic: t, wall: t.Round(0)}
}

// age is how long ago the instant was.
func (i instant) age() time.Duration { return now().since(i) }

func (i instant) since(earlier instant) time.Duration {
	return max(i.monotonic.Sub(earlier.monotonic), i.wall.Sub(earlier.wall))
}

// fenceMargin is how long before its end a lease counts as no longer held: clocks of
// different machines do not run equally fast, and cancelling takes time.
func fenceMargin(duration time.Duration) time.Duration {
	return max(100*time.Millisecond, duration/20)
}

// mayBegin decides whether something that takes at most longest may begin when
// the lease was renewed age ago.
func mayBegin(age, longest, duration, retry time.Duration) bool {
	return keeps(duration-fenceMargin(duration), age, longest, duration, retry)
}

// mayGoOut decides the same about something that was allowed a moment ago and is on its way:
// half of the margin may have been used up since.
func mayGoOut(age, longest, duration, retry time.Duration) bool {
	return keeps(duration-fenceMargin(duration)/2, age, longest, duration, retry)
}

// keeps reports whether the limit is kept.
func keeps(limit, age, longest, duration, retry time.Duration) bool {
	if age >= limit {
		return false
	}
	if fits(longest, duration, retry) {
		return age+longest <= limit
	}
	return true
}

// fits reports whether something that takes at most longest can be kept within a
// lease: there must be a time between two renewals at which it may begin, also
// when a renewal takes as long as the margin.
func fits(longest, duration, retry time.Duration) bool {
	return longest+retry+2*fenceMargin(duration) <= duration
}
