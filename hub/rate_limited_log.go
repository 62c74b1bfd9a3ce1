package hub

import "time"

// The shortest times between two lines, with the same text and with another text.
const (
	logSameEvery  = 10 * time.Minute
	logOtherAfter = time.Minute
)

// rateLimitedLog keeps a problem that persists from flooding the log.
type rateLimitedLog struct {
	text string
	when time.Time
}

// isDue reports whether to log a text now. If so, the text counts as logged.
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
