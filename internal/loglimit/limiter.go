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

// Info logs a line, or suppresses it. A line after suppressed lines has their number as key "suppressed".
// There must be few different messages: the Limiter remembers each.
func (l *Limiter) Info(logger klog.Logger, message string, keysAndValues ...any) {
	suppressed, due := l.isDue(message, time.Now())
	switch {
	case !due:
	case suppressed > 0:
		logger.WithCallDepth(1).Info(message, append(keysAndValues, "suppressed", suppressed)...)
	default:
		logger.WithCallDepth(1).Info(message, keysAndValues...)
	}
}

// isDue reports whether to log a message now, and how many lines with it were suppressed before.
func (l *Limiter) isDue(message string, now time.Time) (suppressed int, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.messages[message]
	if m == nil {
		m = &messageLimit{Limiter: rate.NewLimiter(rate.Every(l.every), l.burst)}
		l.messages[message] = m
	}
	if !m.AllowN(now, 1) {
		m.suppressed++
		return 0, false
	}
	suppressed, m.suppressed = m.suppressed, 0
	return suppressed, true
}
