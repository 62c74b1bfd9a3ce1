package hub

import (
	"sync"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// callsInFlight has the calls of one term that have not returned, and knows since when the driver has answered none.
type callsInFlight struct {
	hasEntry func(queue.Key) bool

	mu   sync.Mutex
	open map[queue.Key]callInFlight // guarded by mu

	session    *liveSession       // that the rest is about; guarded by mu
	unanswered time.Time          // the first call began after the last answer; zero: there is none; guarded by mu
	owed       map[queue.Key]bool // entries whose last call has ended without an answer; guarded by mu
}

type callInFlight struct {
	status.Call
	lane queue.Lane
}

// begin notes that the call of an entry begins. An entry has one call at a time.
func (c *callsInFlight) begin(s *liveSession, e *callerOf, method string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session != s && (s == nil || !s.ended.Load()) { // another process may be behind it
		c.session, c.unanswered, c.owed = s, time.Time{}, nil
	}
	if c.unanswered.IsZero() || !c.owes() {
		c.unanswered = now
	}
	if c.open == nil {
		c.open = map[queue.Key]callInFlight{}
	}
	c.open[e.key] = callInFlight{Call: status.Call{Method: method, Since: now, VolumeAttachment: e.key.Name}, lane: e.lane}
}

// end notes that the call of an entry has returned.
func (c *callsInFlight) end(s *liveSession, key queue.Key, answered bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, key)
	switch {
	case c.session != s:
	case answered:
		c.unanswered, c.owed = time.Time{}, nil
	case c.owed == nil:
		c.owed = map[queue.Key]bool{key: true}
	default:
		c.owed[key] = true
	}
}

// owes reports whether an answer is still of use: a call is in flight, or its entry waits for the next try. A driver
// without work would otherwise count as unresponsive until the next answer, which may be days later. The caller has
// locked mu.
func (c *callsInFlight) owes() bool {
	for key := range c.owed {
		if c.hasEntry(key) {
			return true
		}
		delete(c.owed, key)
	}
	return len(c.open) > 0
}

// unansweredSince returns when the first call began after the driver's last answer on a session, zero if it has answered
// since or the session has ended.
func (c *callsInFlight) unansweredSince(s *liveSession) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s == nil || c.session != s || s.ended.Load() || !c.owes() {
		return time.Time{}
	}
	return c.unanswered
}

// of returns the call of an entry, zero if it has none.
func (c *callsInFlight) of(key queue.Key) status.Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open[key].Call
}

// oldest returns the oldest call of each lane, zero if it has none, and the number of all calls.
func (c *callsInFlight) oldest() (oldest [queue.LaneCount]status.Call, all int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range c.open {
		if o := &oldest[call.lane]; o.Since.IsZero() || call.Since.Before(o.Since) {
			*o = call.Call
		}
	}
	return oldest, len(c.open)
}
