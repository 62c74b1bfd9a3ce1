package hub

import (
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
)

// State is where a driver is in its life, as far as it is served.
type State string

const (
	// Connecting: there has been no connection yet.
	Connecting State = "Connecting"
	// Probing: there is a process that answers, and it is not ready, or does not answer
	// as a CSI driver.
	Probing State = "Probing"
	// NameMismatch: another driver answers. It gets no call.
	NameMismatch State = "NameMismatch"
	// WaitingForLease: another process has the driver's lease, or should have it.
	WaitingForLease State = "WaitingForLease"
	// Ready: its volumes are attached and detached, or observed if its mode says so.
	Ready State = "Ready"
	// Lost: there was a connection, and it has ended.
	Lost State = "Lost"
	// Draining: it is not to be worked for any more here, calls in flight may end.
	Draining State = "Draining"
	// Paused: its mode says so, or another attacher was found at work.
	Paused State = "Paused"
)

// Condition is the state of a driver with what is known about it.
type Condition struct {
	State     State
	Reason    string    // why it is not Ready, for people; empty if it is
	Since     time.Time // of the state
	LastError string    // of the connection, also one that was overcome; empty for none
	ErrorTime time.Time // of LastError
}

// condition makes one Condition of what several sides know about a driver that is
// engaged: its connection, its lease, its mode, the work that is being ended.
type condition struct {
	mu      sync.Mutex
	parts   conditionParts
	current Condition
}

// conditionParts is what a state follows from.
type conditionParts struct {
	connection       State // Connecting, Probing, NameMismatch, Lost, or Ready
	connectionReason string
	waiting          string // why there is no lease; empty if it is held or not needed
	paused           string // why no work is taken; empty if it is
	draining         string // what may end still; empty if nothing is being ended
}

func newCondition(now time.Time) *condition {
	c := &condition{current: Condition{Since: now}}
	c.parts = conditionParts{connection: Connecting, connectionReason: "not tried yet"}
	c.current.State, c.current.Reason = c.parts.state()
	return c
}

// state says which state the parts make, and why. What keeps a driver from being called
// at all comes before what keeps it from being called here.
func (p conditionParts) state() (State, string) {
	switch {
	case p.draining != "":
		return Draining, p.draining
	case p.connection != Ready:
		return p.connection, p.connectionReason
	case p.paused != "":
		return Paused, p.paused
	case p.waiting != "":
		return WaitingForLease, p.waiting
	}
	return Ready, ""
}

// get returns the Condition of the moment.
func (c *condition) get() Condition {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

// change changes parts. The time changes only with the state.
func (c *condition) change(now time.Time, edit func(*conditionParts)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	edit(&c.parts)
	state, reason := c.parts.state()
	if state != c.current.State {
		c.current.State, c.current.Since = state, now
	}
	c.current.Reason = reason
}

// enter changes the state of the connection, for a reason that is not an error.
func (c *condition) enter(s State, reason string, now time.Time) {
	c.change(now, func(p *conditionParts) { p.connection, p.connectionReason = s, reason })
}

// failed takes an error of connecting or probing in.
func (c *condition) failed(err error, now time.Time) {
	c.change(now, func(p *conditionParts) {
		p.connection, p.connectionReason = stateAfter(p.connection, err), err.Error()
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current.LastError, c.current.ErrorTime = err.Error(), now
}

// connection returns the state of the connection alone, and why it is that.
func (c *condition) connection() (State, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.parts.connection, c.parts.connectionReason
}

// wait notes why the lease is not held; "" when it is, or is not needed.
func (c *condition) wait(reason string, now time.Time) {
	c.change(now, func(p *conditionParts) { p.waiting = reason })
}

// drain notes that work is being ended; "" when it has.
func (c *condition) drain(what string, now time.Time) {
	c.change(now, func(p *conditionParts) { p.draining = what })
}

// stateAfter says which state an error of connecting or probing leads to.
func stateAfter(from State, err error) State {
	var mismatch *csiclient.NameError
	switch {
	case errors.As(err, &mismatch):
		return NameMismatch
	case errors.Is(err, csiclient.ErrNotReady):
		return Probing
	}
	if _, answered := status.FromError(err); answered {
		return Probing
	}
	if from == Connecting {
		return Connecting
	}
	return Lost
}
