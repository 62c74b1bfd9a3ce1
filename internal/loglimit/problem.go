package loglimit

import "time"

// The shortest times between two lines, with the same text and with another text.
const (
	sameEvery  = 10 * time.Minute
	otherAfter = time.Minute
)

// Problem says when to log a condition that persists. The zero value is ready for use, by one goroutine at a time.
type Problem struct {
	text string
	when time.Time
}

// Logged notes that a text is logged now.
func (p *Problem) Logged(text string, now time.Time) { p.text, p.when = text, now }

// IsDue reports whether to log a text now: the first text at once, another text a minute after the last line, the
// same text after ten minutes. If so, the text counts as logged.
func (p *Problem) IsDue(text string, now time.Time) bool {
	quiet := otherAfter
	if text == p.text {
		quiet = sameEvery
	}
	if !p.when.IsZero() && now.Sub(p.when) < quiet {
		return false
	}
	p.Logged(text, now)
	return true
}
