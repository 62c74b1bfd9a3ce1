package hub

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/internal/panics"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// redialAfter is how long the Probes on a connection must fail before a second connection is tried, and the pause
// between two tries of it. The process behind the first connection may hang while another process behind the
// same endpoint works: a Service with several replicas, a proxy, a socket that was replaced.
const redialAfter = 30 * time.Second

// sessionUse is the use of one session, and of the sessions that replace it because its Probes fail. A session that
// was replaced takes no further call; its calls in flight go on until they end by themselves.
type sessionUse struct {
	*connection
	spec registry.Driver // that the session was made with

	live   *liveSession
	probe  *attempt       // in flight, or nil
	redial *attempt       // in flight, or nil
	calls  sync.WaitGroup // the goroutines of probes and redials
	fail   func(error)    // takes a panic in them

	failures  int       // of Probes in a row
	waitsFrom time.Time // the first of these failures, or the last redial if that was later
	redialErr error     // of the last redial since a Probe succeeded; nil for none
}

// attempt is a Probe or a redial in flight.
type attempt struct {
	cancel  context.CancelFunc
	ended   chan struct{} // closed when there is an answer
	session Session       // of a redial, with the answer
	err     error         // with the answer
}

// errPanicked is the error of an attempt that has panicked.
var errPanicked = errors.New("panic while probing or connecting")

// try starts f in a goroutine of its own.
func (u *sessionUse) try(ctx context.Context, f func(context.Context) (Session, error)) *attempt {
	ctx, cancel := context.WithCancel(ctx)
	a := &attempt{cancel: cancel, ended: make(chan struct{}), err: errPanicked}
	panics.Go(&u.calls, u.fail, func() {
		defer close(a.ended)
		defer cancel()
		a.session, a.err = f(ctx)
	})
	return a
}

// answered returns a channel that is closed when there is an answer, nil for no attempt.
func (a *attempt) answered() <-chan struct{} {
	if a == nil {
		return nil
	}
	return a.ended
}

// use keeps a session in use until it has ended, the endpoint or TLS of the driver changes, or ctx ends. It notices
// each of these at once, also while the driver does not answer.
func (c *connection) use(ctx context.Context, fail func(error), s Session, spec registry.Driver) {
	ctx, cancel := context.WithCancel(ctx)
	u := &sessionUse{connection: c, spec: spec, fail: fail}
	defer u.end(cancel)
	u.begin(ctx, s)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for next := time.Now().Add(c.manager.settings().Probe.Interval); ; { // next: the next Probe
		state, changed := c.manager.watch()
		if !state.isReachedAs(spec) {
			c.manager.update(func(s *driverState) { s.setConnection(Connecting, "the driver is to be reached in another way") })
			return
		}
		// The settings may have changed: the next Probe may be due sooner.
		if soonest := time.Now().Add(state.spec.Probe.Interval); soonest.Before(next) {
			next = soonest
		}
		var due <-chan time.Time
		if u.probe == nil {
			timer.Reset(time.Until(next))
			due = timer.C
		}
		select {
		case <-u.live.Done():
			c.manager.update(func(s *driverState) { s.setConnection(Lost, "the connection has ended") })
			if c.log.IsDue("lost", time.Now()) {
				klog.FromContext(ctx).Info("Lost connection to driver, reconnecting", "endpoint", spec.Endpoint)
			}
			return
		case <-ctx.Done():
			return
		case <-changed:
		case <-due:
			u.startProbe(ctx)
		case <-u.probe.answered():
			next = time.Now().Add(u.endProbe(ctx))
		case <-u.redial.answered():
			if u.endRedial(ctx) {
				next = time.Now().Add(state.spec.Probe.Interval)
			}
		}
	}
}

// begin takes a session into use, and ends the session before it if there is one.
func (u *sessionUse) begin(ctx context.Context, s Session) {
	before := u.live
	u.live = &liveSession{Session: s, since: time.Now()}
	u.failures, u.redialErr = 0, nil
	if u.probe != nil {
		u.probe.cancel()
		u.probe = nil
	}
	u.manager.setUp(true, func(s *driverState) {
		s.session = u.live
		s.setConnection(Ready, "")
	})
	logger := klog.FromContext(ctx)
	logger.V(2).Info("Connected to driver", "endpoint", u.spec.Endpoint, "version", s.Info().Version)
	if n := u.manager.recordedCalls(u.manager.get()); n > 0 && u.capabilityLog.IsDue("", time.Now()) {
		logger.Info("Driver has no PUBLISH_UNPUBLISH_VOLUME, but VolumeAttachments record calls to it: check that the endpoint is that of its controller",
			"endpoint", u.spec.Endpoint, "volumeAttachments", n)
	}
	if before != nil {
		logger.Info("Replaced connection to driver because Probe failed, calls in flight continue", "endpoint", u.spec.Endpoint)
		before.end()
	}
}

// end ends the session that is in use, and waits for its attempts.
func (u *sessionUse) end(cancel context.CancelFunc) {
	u.manager.setUp(false, func(*driverState) {})
	u.live.end()
	u.dropRedial()
	cancel()
	u.calls.Wait()
}

// probeTimeout bounds a Probe.
const probeTimeout = 10 * time.Second

// startProbe starts a Probe of the driver.
func (u *sessionUse) startProbe(ctx context.Context) {
	s := u.live.Session
	u.probe = u.try(ctx, func(ctx context.Context) (Session, error) {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		return nil, s.Probe(ctx)
	})
}

// endProbe takes the answer of a Probe, and returns the pause before the next Probe. While Probes fail the
// driver's queue waits; calls in flight go on.
func (u *sessionUse) endProbe(ctx context.Context) time.Duration {
	now, state := time.Now(), u.manager.get()
	interval, err := state.spec.Probe.Interval, u.probe.err
	u.probe = nil
	switch {
	case err == nil:
		u.failures, u.redialErr = 0, nil
		u.dropRedial()
		if !state.up {
			u.manager.setUp(true, func(s *driverState) { s.setConnection(Ready, "") })
		}
		return interval
	case isDone(u.live) || ctx.Err() != nil:
		return interval // use returns now
	}
	if u.failures++; u.failures == 1 {
		u.waitsFrom = now
	}
	soon := min(connectRetryMax, interval)
	// A driver under load may answer late once. The answer "not ready" counts at once.
	if u.failures < 2 && !errors.Is(err, csiclient.ErrNotReady) {
		return soon
	}
	if u.redialErr != nil && u.redialErr.Error() != err.Error() {
		err = fmt.Errorf("%w; a second connection failed too: %v", err, u.redialErr)
	}
	u.manager.setUp(false, func(s *driverState) { s.setError(err, now) })
	if u.log.IsDue(err.Error(), now) {
		klog.FromContext(ctx).Info("Driver is unhealthy, its volumes wait", "endpoint", u.spec.Endpoint, "err", err)
	}
	if u.redial == nil && now.Sub(u.waitsFrom) >= redialAfter {
		u.redial = u.try(ctx, func(ctx context.Context) (Session, error) { return u.dial(ctx, u.spec) })
	}
	return soon
}

// endRedial takes the second connection into use if the redial has succeeded, and reports whether it has.
func (u *sessionUse) endRedial(ctx context.Context) bool {
	s, err := u.redial.session, u.redial.err
	u.redial = nil
	if err != nil {
		u.waitsFrom, u.redialErr = time.Now(), err // reported with the next Probe that fails
		return false
	}
	u.begin(ctx, s)
	return true
}

// dropRedial ends a redial that is in flight, and closes the session that it may still return.
func (u *sessionUse) dropRedial() {
	dropped := u.redial
	if dropped == nil {
		return
	}
	u.redial = nil
	dropped.cancel()
	panics.Go(&u.calls, u.fail, func() {
		if <-dropped.ended; dropped.err == nil {
			dropped.session.Close()
		}
	})
}
