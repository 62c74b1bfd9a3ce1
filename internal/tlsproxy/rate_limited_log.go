package tlsproxy

import (
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// logInterval is the shortest time between two lines with the same message.
const logInterval = 10 * time.Second

// rateLimitedLog logs each message at most once per logInterval, with the number of lines
// that it left out since. The zero value is ready for use.
type rateLimitedLog struct {
	mu       sync.Mutex
	messages map[string]*messageCount // by message; guarded by mu
}

type messageCount struct {
	last    time.Time // when it was logged
	leftOut int       // since then
}

func (l *rateLimitedLog) log(logger klog.Logger, message string, keysAndValues ...any) {
	if leftOut, due := l.due(message, time.Now()); due {
		logger.WithCallDepth(1).Info(message, append(keysAndValues, "leftOut", leftOut)...)
	}
}

// due reports whether to log a message now, and how often it was left out before.
func (l *rateLimitedLog) due(message string, now time.Time) (leftOut int, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.messages == nil {
		l.messages = map[string]*messageCount{}
	}
	m := l.messages[message]
	if m == nil {
		m = &messageCount{}
		l.messages[message] = m
	}
	if !m.last.IsZero() && now.Sub(m.last) < logInterval {
		m.leftOut++
		return 0, false
	}
	leftOut, m.last, m.leftOut = m.leftOut, now, 0
	return leftOut, true
}
