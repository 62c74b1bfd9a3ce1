package hub

import "time"

// How often the same trouble is logged, and how soon another one.
const (
	logSameEvery  = 10 * time.Minute
	logOtherAfter = time.Minute
)

// rateLimitedLog keeps a trouble that goes on from flooding the log.
type rateLimitedLog struct {
	text string
	when time.Time
}

// isDue reports whether a text is to be logged now. If so, it counts as logged.
func (l *rateLimitedLog) isDue(text string, now time.Time) bool {
	quiet := logOtherAfter
	if text == l.text {
		quiet = logSameEvery
	}
	if !l.when.IsZero() && now.Sub(l.when) < quiet {
		return false
	}
	l.text, l.when = text, now
	return true
}
