package loglimit

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/klog/v2"
)

// Limiter bounds the rate of log lines, for each message apart: a flood of failures must not hide a success.
// Its methods are safe for concurrent use.
type Limiter struct {
	every time.Duration
	burst int

	mu       sync.Mutex
	messages map[string]*messageLimit // by message; guarded by mu
}

type messageLimit struct {
	*rate.Limiter
	suppressed int // lines since the last one that was logged
}

// New returns a Limiter that logs each message at most burst times at once, and then once in every interval.
func New(burst int, every time.Duration) *Limiter {
	return &Limiter{every: every, burst: burst, messages: map[string]*messageLimit{}}
}

// Info logs a line, or suppresses it, and reports whether it logged the line. A line after suppressed lines has their
// number as key "suppressed". There must be few different messages: the Limiter remembers each.
func (l *Limiter) Info(logger klog.Logger, message string, keysAndValues ...any) (logged bool) {
	keysAndValues, due := l.admit(message, keysAndValues)
	if due {
		logger.WithCallDepth(1).Info(message, keysAndValues...)
	}
	return due
}

// Error is Info for a line of severity error.
func (l *Limiter) Error(logger klog.Logger, err error, message string, keysAndValues ...any) {
	if keysAndValues, due := l.admit(message, keysAndValues); due {
		logger.WithCallDepth(1).Error(err, message, keysAndValues...)
	}
}

// admit reports whether to log a line, and returns its keys and values.
func (l *Limiter) admit(message string, keysAndValues []any) (all []any, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.messages[message]
	if m == nil {
		m = &messageLimit{Limiter: rate.NewLimiter(rate.Every(l.every), l.burst)}
		l.messages[message] = m
	}
	if !m.Allow() {
		m.suppressed++
		return nil, false
	}
	if m.suppressed > 0 {
		keysAndValues = append(keysAndValues, "suppressed", m.suppressed)
		m.suppressed = 0
	}
	return keysAndValues, true
}

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
