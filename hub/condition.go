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
	// Ready: its volumes are attached and detached.
	Ready State = "Ready"
	// Lost: there was a connection, and it has ended.
	Lost State = "Lost"
	// Draining: it is not served any more, calls in flight may end.
	Draining State = "Draining"
)

// Condition is the state of a driver with what is known about it.
type Condition struct {
	State     State
	Reason    string    // why it is not Ready, for people; empty if it is
	Since     time.Time // of the state
	LastError string    // of the connection, also one that was overcome; empty for none
}

// condition holds the Condition of a driver that is being served.
type condition struct {
	mu      sync.Mutex
	current Condition
}

func newCondition(now time.Time) *condition {
	return &condition{current: Condition{State: Connecting, Reason: "not tried yet", Since: now}}
}

// get returns the Condition of the moment.
func (c *condition) get() Condition {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

// enter changes the state, for a reason that is not an error.
func (c *condition) enter(s State, reason string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = moved(c.current, s, reason, now)
}

// failed takes an error of connecting or probing in.
func (c *condition) failed(err error, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = moved(c.current, stateAfter(c.current.State, err), err.Error(), now)
	c.current.LastError = err.Error()
}

// moved is a Condition after a step. The time changes only with the state.
func moved(from Condition, to State, reason string, now time.Time) Condition {
	if from.State != to {
		from.State, from.Since = to, now
	}
	from.Reason = reason
	return from
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
