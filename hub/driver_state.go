package hub

import (
	"errors"
	"time"

	"google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/observe"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// State is where a driver is in its life, as far as it is served.
type State string

const (
	// Connecting: there has been no connection yet.
	Connecting State = "Connecting"
	// Probing: a process answers, and it is not ready, or does not answer as a CSI driver.
	Probing State = "Probing"
	// NameMismatch: another driver answers. It gets no call.
	NameMismatch State = "NameMismatch"
	// WaitingForLease: another process has the driver's lease, or should have it.
	WaitingForLease State = "WaitingForLease"
	// Ready: its volumes are attached and detached, or observed if its mode says so.
	Ready State = "Ready"
	// Lost: there was a connection, and it has ended.
	Lost State = "Lost"
	// Draining: the work for it ends here, calls in flight may end.
	Draining State = "Draining"
	// Paused: its mode says so, or another attacher was found at work.
	Paused State = "Paused"
)

// driverState is what a manager knows about its driver. It is a value: whoever reads it gets a copy.
type driverState struct {
	spec      registry.Driver   // how it is to be served
	autoPause string            // why the hub itself has paused it; empty if it has not
	role      role              // what this process does for it now
	leader    *leader           // nil unless this process works for it
	observer  *observe.Observer // nil unless another attacher is watched

	session          *liveSession // the latest, which may have ended; nil if there was none
	up               bool         // the driver can be called
	upSince          time.Time    // since when up is what it is; zero: the driver never could be called
	connection       State        // Connecting, Probing, NameMismatch, Lost, or Ready
	connectionReason string
	lastError        string    // of the connection, also one that was overcome; empty for none
	errorTime        time.Time // of lastError

	waiting  string // why the lease is not held; empty if it is, or is not needed
	draining string // what may end still; empty if nothing is being ended
	// leaseOffered: the lease was let go because the driver could not be called, or nobody took it
	// while it was free, since the driver could last be called for the lease's duration.
	leaseOffered bool

	conflict conflictingWrite // the last write of another attacher; zero for none

	// These follow from the rest.
	State  State
	Reason string    // why it is not Ready, for people; empty if it is
	Since  time.Time // of the State
}

// conflictingWrite is a write of another attacher to a VolumeAttachment of a driver that this process
// works for.
type conflictingWrite struct {
	attach.Write
	VolumeAttachment string
}

func newDriverState(spec registry.Driver, now time.Time) driverState {
	s := driverState{spec: spec, connection: Connecting, connectionReason: "not tried yet"}
	s.settle("", now)
	return s
}

// settle sets what follows from the rest. The time changes only with the State.
func (s *driverState) settle(before State, now time.Time) {
	if s.State, s.Reason = s.decide(); s.State != before {
		s.Since = now
	}
}

// decide says which State it is, and why. What keeps a driver from being called at all comes before
// what keeps it from being called here.
func (s *driverState) decide() (State, string) {
	switch {
	case s.draining != "":
		return Draining, s.draining
	case s.connection != Ready:
		return s.connection, s.connectionReason
	case s.role.pausedBy != "":
		return Paused, s.role.pausedBy
	case s.waiting != "":
		return WaitingForLease, s.waiting
	}
	return Ready, ""
}

// setConnection notes the state of the connection, for a reason that is not an error.
func (s *driverState) setConnection(state State, reason string) {
	s.connection, s.connectionReason = state, reason
}

// setError notes an error of connecting or probing.
func (s *driverState) setError(err error, now time.Time) {
	s.setConnection(stateAfter(s.connection, err), err.Error())
	s.lastError, s.errorTime = err.Error(), now
}

// stateAfter says which state of the connection an error of connecting or probing leads to.
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

// capabilities are those that the driver had in its latest session, none if there was none: they say
// what the driver was.
func (s driverState) capabilities() csiclient.Capabilities {
	if s.session == nil {
		return csiclient.Capabilities{}
	}
	return s.session.Info().Capabilities
}

// isReachedAs reports whether the driver is to be reached in the way that a spec says.
func (s driverState) isReachedAs(spec registry.Driver) bool {
	return s.spec.Name == spec.Name && s.spec.Endpoint == spec.Endpoint && s.spec.TLS == spec.TLS
}

// isCallable reports whether the driver counts as one that can be called from here, and when to ask
// again if nothing changes. A driver that has just gone away is mostly back in a moment: it counts
// until it has been away for the timeout; 0 means that it counts for ever.
func (s driverState) isCallable(timeout time.Duration, now time.Time) (callable bool, again time.Duration) {
	away := now.Sub(s.upSince) // far longer than the timeout if it could never be called
	switch {
	case s.up || timeout == 0:
		return true, never
	case away < timeout:
		return true, timeout - away
	}
	return false, never
}
