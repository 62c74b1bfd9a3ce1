package tlsproxy

import (
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// quietTime lies between two lines of one message in the log.
const quietTime = 10 * time.Second

// quiet logs each message once in a while, with how often it was left out. The zero
// value is ready for use.
type quiet struct {
	mu    sync.Mutex
	lines map[string]*line // by message; guarded by mu
}

type line struct {
	last    time.Time
	leftOut int
}

func (q *quiet) log(logger klog.Logger, message string, keysAndValues ...any) {
	if leftOut, due := q.due(message, time.Now()); due {
		logger.WithCallDepth(1).Info(message, append(keysAndValues, "leftOut", leftOut)...)
	}
}

func (q *quiet) due(message string, now time.Time) (leftOut int, due bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.lines == nil {
		q.lines = map[string]*line{}
	}
	l := q.lines[message]
	if l == nil {
		l = &line{}
		q.lines[message] = l
	}
	if !l.last.IsZero() && now.Sub(l.last) < quietTime {
		l.leftOut++
		return 0, false
	}
	leftOut, l.last, l.leftOut = l.leftOut, now, 0
	return leftOut, true
}
