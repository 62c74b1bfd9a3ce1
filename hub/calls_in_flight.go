package hub

import (
	"sync"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// callsInFlight knows since when the driver has answered no call of one term.
type callsInFlight struct {
	hasItem func(queue.Key) bool

	mu         sync.Mutex         // guards all that follows
	open       int                // calls that have not returned
	session    *liveSession       // that the rest is about
	unanswered time.Time          // the first call began after the last answer; zero: there is none
	owed       map[queue.Key]bool // items whose last call has ended without an answer
}

// begin notes that a call begins.
func (c *callsInFlight) begin(s *liveSession, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session != s && (s == nil || !s.ended.Load()) { // another process may be behind it
		c.session, c.unanswered, c.owed = s, time.Time{}, nil
	}
	if c.unanswered.IsZero() || !c.owes() {
		c.unanswered = now
	}
	c.open++
}

// end notes that the call of an item has returned.
func (c *callsInFlight) end(s *liveSession, key queue.Key, answered bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
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

// owes reports whether an answer is still of use: a call is in flight, or its item waits for the next try. A driver
// without work would otherwise count as unresponsive until the next answer, which may be days later. The caller has
// locked mu.
func (c *callsInFlight) owes() bool {
	for key := range c.owed {
		if c.hasItem(key) {
			return true
		}
		delete(c.owed, key)
	}
	return c.open > 0
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

// callOf returns the call of a VolumeAttachment, zero if it has none.
func (l *leader) callOf(name string) status.Call {
	p, _ := l.queue.Look(queue.ClaimKey(name))
	return status.Call(p.Call)
}
