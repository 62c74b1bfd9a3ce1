package driver

import (
	"errors"
	"time"

	grpcstatus "google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/observe"
	"github.com/csi-attach-hub/csi-attach-hub/hub/reconcile"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// notTriedYet is the Reason of a State that lasts until a first try has ended.
const notTriedYet = "not tried yet"

// state is what a manager knows about its driver. It is a value: readers get a copy.
type state struct {
	spec     registry.Driver   // how it is to be served
	role     role              // what this process does for it now
	leader   *lifecycle        // nil unless this process works for it
	observer *observe.Observer // nil unless another attacher is watched

	session          reconcile.Session // the latest session, which may have ended; nil if there was none
	up               bool              // the driver can be called
	upSince          time.Time         // when up changed last, or the driver was first served
	connection       string            // Connecting, Probing, NameMismatch, Lost, or Ready
	connectionReason string
	connectionError  status.Failure // the last one, also from before it was ready; zero for none

	waiting  string // why the lease is not held; empty if it is held or not needed
	draining string // what the driver drains; empty if it does not drain
	// leaseOffered: other processes could take the lease because this process could not call the driver.
	// It is reset when the driver could be called for the lease's duration.
	leaseOffered bool

	foreignWriter status.ForeignWriter // the last one; zero for none

	// update computes these from the rest.
	State  string
	Reason string    // why it is not Ready, for people; empty if it is
	Since  time.Time // of the State
}

// decide returns the State and its reason. A reason that keeps every process from calling the driver has
// precedence over a reason that concerns only this process.
func (s *state) decide() (state, reason string) {
	switch {
	case s.draining != "":
		return status.StateDraining, s.draining
	case s.connection != status.StateReady:
		return s.connection, s.connectionReason
	case s.role.mode == registry.ModePaused:
		return status.StatePaused, pausedBy
	case s.waiting != "":
		return status.StateWaitingForLease, s.waiting
	}
	return status.StateReady, ""
}

// setError sets the state of the connection after an error of connecting or probing.
func (s *state) setError(err error, now time.Time) {
	_, other := errors.AsType[*csiclient.NameError](err)
	_, answered := grpcstatus.FromError(err)
	switch {
	case other:
		s.connection = status.StateNameMismatch
	case answered || errors.Is(err, csiclient.ErrNotReady):
		s.connection = status.StateProbing
	case s.connection != status.StateConnecting:
		s.connection = status.StateLost
	}
	s.connectionReason, s.connectionError = err.Error(), status.Failure{Time: now, Text: err.Error()}
}

// isReachedAs reports whether the driver has the endpoint and TLS of a spec.
func (s state) isReachedAs(spec registry.Driver) bool {
	return s.spec.Endpoint == spec.Endpoint && s.spec.TLS == spec.TLS
}

// giveUpAfter is how long a driver must be unreachable until this process gives up its lease and does not take it
// again before it is connected. A csi-attacher, which may reach the driver, waits for the lease.
const giveUpAfter = 5 * time.Minute

// reach returns whether the driver can be called from here, and when to ask again if the state does not change.
// leaseDuration is 0 without leases: then the driver always counts as callable.
func (s state) reach(leaseDuration time.Duration, now time.Time) (r lease.Reach, again time.Duration) {
	away := now.Sub(s.upSince)
	switch {
	case s.up || leaseDuration == 0:
		return lease.Callable, never
	case s.session == nil || away >= giveUpAfter:
		return lease.Unreached, never
	case away < leaseDuration:
		return lease.JustAway, leaseDuration - away
	}
	return lease.Away, giveUpAfter - away
}

// loggedState is what a log line says of the state of a driver.
type loggedState struct {
	state string
	mode  registry.Mode
}

// logState logs the State when it or the mode has changed, as soon as the mode and the Reason are known. The Reason why the driver cannot
// be called is logged again while tries to connect fail: every ten minutes, and another Reason a minute after the last line at the
// earliest. Ten lines at once, then one a minute: a driver may accept connections and hang up all the time. The next Probe or try to
// connect logs a state whose line was suppressed. With V(2) no line is suppressed. The caller holds mu.
func (m *Manager) logState(before, s state) {
	now, is := time.Now(), loggedState{s.State, s.role.mode}
	fails := s.connectionError != before.connectionError && s.connection != status.StateReady
	if s.Reason == notTriedYet || is.mode == "" || is == m.logged && !(fails && m.loggedReason.IsDue(s.Reason, now)) {
		return
	}
	values := []any{"state", s.State, "mode", string(is.mode), "endpoint", string(s.spec.Endpoint)}
	if s.Reason != "" {
		values = append(values, "reason", s.Reason)
	}
	if s.State == status.StateReady && s.session != nil {
		info := s.session.Info()
		values = append(values, "version", info.Version, "attaches", info.Capabilities.PublishUnpublish)
	}
	if m.Logger.V(2).Enabled() {
		m.Logger.Info("Driver state", values...)
	} else if !m.stateLog.Info(m.Logger, "Driver state", values...) {
		return
	}
	m.logged = is
	m.loggedReason.Logged(s.Reason, now)
}
